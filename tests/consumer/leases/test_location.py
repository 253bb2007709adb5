"""URLs of databases in messages: the password is never shown, host and database are."""

from __future__ import annotations

from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kinesis_sdk.common.errors import without_userinfo
from kinesis_sdk.consumer.leases.table.location import without_password

SCHEMES = st.sampled_from(["postgresql", "postgresql+psycopg", "mysql+pymysql", "mariadb"])
USERS = st.sampled_from(["", "app", "app-1", "me%40corp"])
HOSTS = st.sampled_from(["db.example.com", "10.0.0.1", "[2001:db8::1]"])
PORTS = st.sampled_from(["", ":5432"])
NAMES = st.sampled_from(["orders", "orders-2"])
# The marks make a leak of any part recognizable: no other part of a URL has these letters.
SECRET = st.text(alphabet="QXZ@:/?&=%+# !$[]", min_size=1, max_size=12)
VALUES = st.text(alphabet="abc@:/?%+., ", min_size=0, max_size=12)
PARAMETERS = st.sampled_from(["sslmode", "application_name", "options", "sslrootcert", "charset"])
PASSWORD_NAMES = st.sampled_from(
    [
        "password",
        "PASSWORD",
        "passwd",
        "sslpassword",
        "pass%77ord",
        "ssl_key_password",
        "authToken",
        "passcode",
        "pass",
        "token",
        "client_secret",
    ]
)


def leaked(shown: str) -> set[str]:
    return set(shown) & set("QXZ")


@given(SCHEMES, USERS, SECRET, HOSTS, PORTS, NAMES, st.lists(st.tuples(PARAMETERS, VALUES), max_size=3))
@example("postgresql", "app", "Q", "db.example.com", "", "orders", [("application_name", "me@host")])
@example("postgresql", "app", "Q", "db.example.com", "", "orders", [("sslrootcert", "/etc/a@b/ca.pem")])
def test_of_a_valid_url_only_the_password_goes(scheme, user, password, host, port, name, parameters):
    query = "&".join(f"{key}={value}" for key, value in parameters)
    tail = f"{host}{port}/{name}" + (f"?{query}" if query else "")
    shown = without_password(f"{scheme}://{user}:{quote(password, safe='')}@{tail}")
    assert shown == f"{scheme}://{user}@{tail}"


@given(
    SCHEMES,
    USERS,
    SECRET,
    HOSTS,
    PORTS,
    NAMES,
    st.sampled_from(["", "?sslmode=require", "?sslmode=a&options=b"]),
)
@example("postgresql", "app", "Q@X", "db.example.com", "", "orders", "")
@example("postgresql", "app", "Q@X?Z", "db.example.com", ":5432", "orders", "?sslmode=require")
@example("postgresql", "app", "Q@X?Z=Q", "db.example.com", "", "orders", "")
@example("postgresql", "app", "Q/X@Z", "db.example.com", "", "orders", "")
def test_a_password_with_unescaped_characters_is_not_shown(scheme, user, password, host, port, name, query):
    # With all of an @, a database and a query inside, the password is a URL of its own, and nothing tells it from the real one.
    assume(not ("@" in password and "/" in password and "?" in password))
    tail = f"{host}{port}/{name}{query}"
    assert without_password(f"{scheme}://{user}:{password}@{tail}") == f"{scheme}://{user}@{tail}"


@given(SCHEMES, st.sampled_from(["", "app@", "app:QXZ@"]), PASSWORD_NAMES, SECRET, HOSTS, PORTS, NAMES)
@example("postgresql", "app@", "password", "Q@X", "db.example.com", ":5432", "orders")
def test_a_password_in_the_query_is_not_shown(scheme, user, key, password, host, port, name):
    for value in (quote_plus(password), password.replace("&", "").replace("?", "").replace("=", "")):
        shown = without_password(
            f"{scheme}://{user}{host}{port}/{name}?sslmode=require&{key}={value}&charset=a"
        )
        assert not leaked(shown), shown
        if value == quote_plus(password) or user == "app@":
            place = f"{user.partition(':')[0].rstrip('@')}@" if user else ""
            assert shown == f"{scheme}://{place}{host}{port}/{name}?sslmode=require&charset=a"


@given(st.text(alphabet="QXZab@:/?&=%.[]", max_size=30))
def test_no_text_fails(text):
    without_password(text)
    without_password(f"postgresql://{text}")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://host/db", "postgresql://host/db"),
        ("postgresql://host/db?application_name=me@there", "postgresql://host/db?application_name=me@there"),
        ("postgresql://user@host:5432/db?password=a@b", "postgresql://user@host:5432/db"),
        ("postgresql://user:a@b@host:x?password=c@d", "postgresql://user@"),
        ("postgresql:///db?host=/tmp&user=app", "postgresql:///db?host=/tmp&user=app"),
        ("postgresql://us/er:pa?x=y@host/db", "postgresql://us/er@host/db"),
        ("sqlite:////data/me@work/leases.db", "sqlite:////data/me@work/leases.db"),
        ("sqlite:///leases.db?timeout=3", "sqlite:///leases.db?timeout=3"),
        (
            "sqlite+pysqlcipher://:secret@/leases.db?kdf_iter=64000",
            "sqlite+pysqlcipher://@/leases.db?kdf_iter=64000",
        ),
        ("memory://", "memory://"),
        ("postgresql://host/db?passfile=/etc/pgpass", "postgresql://host/db?passfile=/etc/pgpass"),
    ],
)
def test_shapes(url, shown):
    assert without_password(url) == shown


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "passwd",
        "sslpassword",
        "ssl_key_password",
        "authToken",
        "passcode",
        "pass",
        "token",
        "secret",
    ],
)
def test_both_ways_to_show_a_url_hide_the_same_secrets(name):
    url = f"postgresql://host/db?sslmode=require&{name}=QXZ&charset=a"
    shown = "postgresql://host/db?sslmode=require&charset=a"
    assert without_password(url) == shown
    assert without_userinfo(f"cannot connect to {url} at once") == f"cannot connect to {shown} at once"
    assert not leaked(without_userinfo(f"http://host/?next=http://there?{name}=QXZ"))
