from __future__ import annotations

from dataclasses import replace

from kinesis_sdk.common.sequence import LATEST, ExtendedSequenceNumber
from kinesis_sdk.consumer.leases import Lease, LeaseObserver


def lease(counter=0, owner="a", key="s"):
    return Lease(lease_key=key, counter=counter, owner=owner, checkpoint=ExtendedSequenceNumber(LATEST))


def test_the_first_sight_of_an_owned_lease_is_fresh():
    observer = LeaseObserver(10)
    assert not observer.is_expired(lease(), 0)
    observer.observe([lease()], 100)
    assert not observer.is_expired(lease(), 110)
    assert observer.is_expired(lease(), 110.01)


def test_an_unowned_lease_is_free_at_once():
    assert LeaseObserver(10).is_expired(lease(owner=None), 0)


def test_a_counter_or_owner_that_changes_is_fresh_again():
    observer = LeaseObserver(10)
    observer.observe([lease(1)], 0)
    observer.observe([lease(1)], 9)
    observer.observe([lease(2)], 10)
    assert not observer.is_expired(lease(2), 20)
    observer.observe([lease(2, owner="b")], 20)
    assert not observer.is_expired(lease(2, owner="b"), 30)
    assert observer.is_expired(lease(2, owner="b"), 30.5)


def test_a_handoff_request_is_no_sign_of_life():
    """It changes who shall own the lease, and not the counter; the holder that it names may be dead."""
    observer = LeaseObserver(10)
    observer.observe([lease(1)], 0)
    requested = replace(lease(1), owner="b", checkpoint_owner="a")
    observer.observe([requested], 6)
    assert not observer.is_expired(requested, 10)
    assert observer.is_expired(requested, 10.01)
    observer.observe([replace(lease(2), owner="b")], 11)
    assert not observer.is_expired(replace(lease(2), owner="b"), 20), "the new owner has begun"


def test_the_next_expiry_is_known_and_deleted_leases_are_forgotten():
    observer = LeaseObserver(10)
    assert observer.next_expiry(0) is None
    observer.observe([lease(key="s"), lease(key="t", owner=None)], 5)
    observer.observe([lease(key="s"), lease(key="u")], 7)
    assert observer.next_expiry(7) == 15
    assert observer.next_expiry(15) == 15, "not expired yet: that needs more than the failover time"
    assert observer.next_expiry(15.001) is None, "the other one was just seen to change"
    observer.observe([lease(key="s"), lease(key="u")], 8)
    assert observer.next_expiry(15.001) == 17
    observer.observe([], 8)
    assert observer.next_expiry(8) is None


def test_how_long_a_lease_has_been_silent_and_free():
    observer = LeaseObserver(10)
    observer.observe([lease(key="s"), lease(key="new", owner=None), lease(key="left")], 5)
    observer.observe([lease(key="s"), lease(key="new", owner=None), lease(1, None, key="left")], 7)
    assert observer.silence(lease(key="s"), 9) == 4
    assert observer.silence(lease(key="new", owner=None), 9) == float("inf"), (
        "never renewed: the KCL's very old"
    )
    assert observer.silence(lease(1, None, key="left"), 9) == 2
    assert observer.unowned_for(lease(key="s"), 9) == -6
    assert observer.unowned_for(lease(key="s"), 18) == 3
    assert observer.unowned_for(lease(key="new", owner=None), 9) == 4
    assert observer.unowned_for(lease(1, None, key="left"), 9) == 2
    leases = [lease(key="s"), lease(1, None, key="left"), lease(key="new", owner=None)]
    assert observer.unowned_longer(leases, 9, 2) == leases[2:], "more than 2 seconds"
    assert observer.unowned_longer(leases, 9, 1.999) == leases[1:]


def test_a_fleet_gathers_while_new_owners_appear():
    observer = LeaseObserver(10)
    owners = ["a"]
    observer.observe([lease(key=name, owner=name) for name in owners], 0)
    assert not observer.is_gathering, "there is nothing to compare with yet"
    seen = []
    for now in range(1, 9):
        owners.append(f"b{now}")
        observer.observe([lease(key=name, owner=name) for name in owners], now)
        seen.append(observer.is_gathering)
    assert seen == [True] * 5 + [False] * 3, "who comes and goes can not keep it up"
    observer.observe([lease(key=name, owner=name) for name in owners[1:]], 9)
    assert not observer.is_gathering
    observer.observe([lease(key=name, owner=name) for name in owners], 10)
    assert observer.is_gathering
