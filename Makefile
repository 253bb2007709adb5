# `make demo` runs the demo, `make test` the tests. Both create .venv on first use. PYTHON=python3.12 selects another interpreter.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
REPEAT ?= 1
TIMES ?= 10
MINUTES ?= 2
COUNT ?= 40
EFFECTS ?= 20000
SEED ?=
ARGS ?=
COMPILE = .cache/uv/bin/uv pip compile --quiet --universal --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' $(ARGS)
MKDOCS = NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs

.DEFAULT_GOAL := help
.PHONY: help install lint demo example test test-all unit integration browser spark spark-full spark-lake spark-scale multilang java fuzz soak effects incidents operations interruptions check english format bench bench-producer bench-consumer bench-calls bench-compression bench-effects bench-latency bench-lease-stores bench-fleet bench-admin bench-spark-plan bench-spark-start bench-kpl bench-java bench-multilang bench-spark-job bench-spark-jvm docs docs-serve reader sizes mutants surface release wheel-compiled test-compiled lock clean

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

install: $(STAMP)  ## Create .venv and install the package with its development tools (LOCK=.ci/requirements.txt for CI's).

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "Python 3.10 or newer is needed; try: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) ..."
ifdef LOCK
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
else
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
endif
	@touch $@

demo: install  ## Run the demo: 20,000 real flights through Kinesis and back (REPEAT=10 for 200,000).
	@$(BIN)/kinesis-sdk demo --repeat $(REPEAT) $(ARGS)

test: install  ## Run all unit tests and one scene of each real part: ten minutes; what it skips is said last.
	@$(BIN)/python -m tools.run_tests test

test-all: test  ## Run `make test`, then all other tests: half an hour.
	@$(BIN)/python -m tools.run_tests rest

unit: install  ## Run the unit tests: one minute, no network, no sleeping.
	@$(BIN)/python -m tools.run_tests unit


integration: install  ## Run the tests with sockets and processes: Spark, LocalStack, workers that are killed.
	@$(BIN)/python -m tools.run_tests integration

browser: install  ## Run the console's tests in Chromium; pictures of each view are kept in .cache/pictures.
	@$(BIN)/python -m tools.run_tests browser

spark: install  ## Run the Spark suite on two Spark versions (needs Java 17; minutes; SPARK_VERSIONS=4.3.0 for one).
	@$(BIN)/python -m pytest integration/test_spark.py

spark-full: install  ## Send 3 million flights through Spark and Kinesis (minutes; FLIGHTS=file.parquet for real ones).
	@SPARK_FULL=1 SPARK_VERSIONS=$${SPARK_VERSIONS:-4.3.0} $(BIN)/python -m pytest -s integration/test_spark.py

spark-lake: install  ## Write Delta and Iceberg tables from Kinesis while drivers are killed and frozen (needs Java 17, Maven; 15 minutes).
	@$(BIN)/python -m pytest integration/examples/test_long_lake.py

spark-scale: install  ## Read 10 million flights of 1,000 shards with a Spark cluster, and kill parts of it (half an hour; ARGS='--rows 1000000', ARGS=--help).
	@$(BIN)/python benchmarks/bench_spark_cluster.py $(ARGS)

multilang: install  ## Run the tests of KCL applications in other languages, including long ones (needs Java 17, npm).
	@$(BIN)/python -m pytest integration/multilang

java: install  ## Run the tests against the real Java KCL, including long ones (needs JDK 17, npm, Maven).
	@$(BIN)/python -m pytest integration/java

lint: install  ## Check lint, format, English and types.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m tools.check_english
	@$(BIN)/mypy

check: lint test-all  ## Run what CI runs: `make lint`, `make test`, `make test-all`.

english: install  ## Check the words of comments, messages and documents (ARGS='--reading kinesis_sdk/spark', ARGS=--help).
	@$(BIN)/python -m tools.check_english $(ARGS)

format: install  ## Format the code and fix what can be fixed safely.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: install  ## Write tables, examples and pictures of the pages from the code, count words, build the site into build/site.
	@$(BIN)/python -m tools.docs_examples
	@$(BIN)/python -m kinesis_sdk.metrics.reference docs/metrics.md
	@$(BIN)/python -m tools.pictures
	@$(BIN)/python -m kinesis_sdk.consumer.properties docs/kcl-properties.md
	@$(BIN)/python -m kinesis_sdk.producer.properties docs/kpl-properties.md
	@$(BIN)/python -m tools.guide_words
	@$(MKDOCS) build --strict

reader: install  ## Do what the quickstart says in an empty folder, and print how long it takes (ARGS=--no-spark; Spark needs Java 17).
	@$(BIN)/python -m integration.reader $(ARGS)

sizes: install  ## Print what each extra weighs when it is installed (downloads; ARGS=--spark for Spark, too).
	@$(BIN)/python -m tools.sizes $(ARGS)

docs-serve: install  ## Show the site on a local port while you write it.
	@$(MKDOCS) serve

example: install  ## Send flights through PySpark and Kinesis into a chart, flights.png (needs Java 17).
	@python=$$($(BIN)/python -m integration.spark.environments) && $$python examples/flights_pipeline.py $(ARGS)

fuzz: install  ## Try every family of tests in full, with TIMES=10 times as many random cases as CI (about an hour; SEED=1000000 for new ones).
	@KINESIS_SDK_FUZZ=$(TIMES) KINESIS_SDK_FUZZ_SEED=$(or $(SEED),0) $(BIN)/python -m tools.run_tests fuzz

soak: install  ## Run producers and workers with random faults (MINUTES=15, SEED=7).
	@$(BIN)/python -m integration.endtoend.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(ARGS)

effects: install  ## Count effects while workers are killed and frozen (EFFECTS=1000000, SEED=7, ARGS='--stores sqlite', ARGS=--help).
	@$(BIN)/python -m integration.effects.run --effects $(EFFECTS) $(if $(SEED),--seed $(SEED)) $(ARGS)

incidents: install  ## Play fourteen incidents on a live fleet: what each view says of them, and when (ARGS='--only poison', ARGS=--help).
	@$(BIN)/python -m integration.incidents.run $(ARGS)

operations: install  ## Make random changes of the lease table of a running fleet (COUNT=200, SEED=7), judged record by record.
	@$(BIN)/python -m integration.endtoend.operations --count $(COUNT) $(if $(SEED),--seed $(SEED)) $(ARGS)

interruptions: install  ## Kill and interrupt kinesis-sdk verify at every creation and change of each step on LocalStack (needs Java 17, Node; 25 minutes).
	@KINESIS_SDK_FUZZ=1 $(BIN)/python -m pytest integration/test_verify.py $(ARGS)

bench: bench-producer bench-consumer bench-calls bench-compression bench-effects bench-lease-stores bench-fleet bench-admin bench-spark-plan install  ## Print the benchmark tables that need neither Java nor Spark.
	@$(BIN)/python benchmarks/bench_codec.py
	@$(BIN)/python benchmarks/bench_transport.py
	@$(BIN)/python benchmarks/bench_hot_shard.py
	@$(BIN)/python benchmarks/bench_failures.py
	@$(BIN)/python benchmarks/bench_retry_order.py
	@$(BIN)/python benchmarks/bench_spark_names.py
	@$(BIN)/python benchmarks/bench_idempotence.py
	@$(BIN)/python benchmarks/bench_fake.py

bench-producer: install  ## Print the producer's cost per record, compared with a floor and with peers.
	@$(BIN)/python benchmarks/bench_producer.py

bench-consumer: install  ## Print the consumer's cost per record, compared with a floor.
	@$(BIN)/python benchmarks/bench_consumer.py

bench-effects: install  ## Print effects per second and delays of each guarantee and store, as ratios.
	@PYTHONPATH=. $(BIN)/python benchmarks/bench_effects.py $(ARGS)

bench-latency: install  ## Print how soon a handler gets a record, by settings of producer and worker (10 minutes).
	@$(BIN)/python benchmarks/bench_latency.py $(ARGS)

bench-lease-stores: install  ## Print what a call of each lease store costs (ARGS='--postgres URL', ARGS=--help).
	@$(BIN)/python benchmarks/bench_lease_stores.py $(ARGS)

bench-compression: install  ## Print what compressed aggregates save and cost, compared with plain ones.
	@$(BIN)/python benchmarks/bench_compression.py

bench-calls: install  ## Print the CPU time of a poller's calls, compared with boto3 and with a floor.
	@$(BIN)/python benchmarks/bench_calls.py

bench-fleet: install  ## Print how fleets share leases: `balanced` compared with the KCL 2.x strategy.
	@$(BIN)/python benchmarks/bench_fleet.py

bench-admin: install  ## Print what a look at an application of 1,000 shards costs.
	@$(BIN)/python benchmarks/bench_admin.py

bench-spark-plan: install  ## Print what the Spark source's planner costs per trigger, by the number of shards.
	@$(BIN)/python benchmarks/bench_spark_plan.py $(ARGS)

bench-spark-start: install  ## Print the CPU of a Spark query up to its first row, by process (needs Java 17; a few minutes).
	@$(BIN)/python benchmarks/bench_spark_start.py $(ARGS)

bench-kpl: install  ## Print the producer's cost per record beside the real Java KPL, over TLS (needs JDK 17, Maven, openssl; 10 minutes).
	@$(BIN)/python benchmarks/bench_kpl.py $(ARGS)

bench-java: install  ## Print costs and times compared with the real Java KCL (needs Java 17, npm; 20 minutes).
	@$(BIN)/python benchmarks/bench_java.py

bench-multilang: install  ## Print costs and times compared with the real MultiLangDaemon (needs Java 17, npm; 15 minutes).
	@$(BIN)/python benchmarks/bench_multilang.py $(ARGS)

bench-spark-job: install  ## Print what a job costs by where its JSON is parsed, also beside the connector for the JVM (needs Java 17, Maven; 15 minutes).
	@$(BIN)/python benchmarks/bench_spark_job.py $(ARGS)

bench-spark-jvm: install  ## Print costs compared with AWS Labs' Spark connector for the JVM (needs Java 17, Maven; 15 minutes).
	@$(BIN)/python benchmarks/bench_spark_jvm.py $(ARGS)

mutants: install  ## Break the package in one place at a time, and tell which mistakes no unit test notices (ARGS="P15 sinks/", ARGS=--help).
	@$(BIN)/python -m tools.mutants $(ARGS)

surface: install  ## Write tools/public_surface.txt: every public name, command and metric.
	@$(BIN)/python -m tools.public_surface

release: install  ## Build, compare and try a release (VERSION=0.1.0); RELEASING.md says what comes before and after.
	@$(BIN)/python -m tools.release $(VERSION)

lock:  ## Renew the pins of CI, of LocalStack and of libraries to compare with (ARGS=--upgrade for newer versions).
	@test -x .cache/uv/bin/uv || { $(PYTHON) -m venv .cache/uv && .cache/uv/bin/pip install --quiet uv; }
	@$(COMPILE) --python-version 3.10 --extra dev pyproject.toml .ci/build.in --output-file .ci/requirements.txt
	@$(COMPILE) --python-version 3.11 integration/localstack/requirements.in --output-file integration/localstack/requirements.txt
	@$(COMPILE) --python-version 3.11 integration/examples/peers.in --output-file integration/examples/peers.txt
	@$(COMPILE) --python-version 3.10 --resolution lowest-direct pyproject.toml --output-file integration/lowest.txt

wheel-compiled: install  ## Build a wheel with the producer's hot modules compiled into dist (needs a C compiler; a minute).
	@$(BIN)/python -m tools.compiled wheel $(ARGS)

test-compiled: install  ## Run the producer's tests on the compiled modules (needs a C compiler; minutes; ARGS=tests/producer/test_api.py).
	@$(BIN)/python -m tools.compiled test $(ARGS)

clean:  ## Remove .venv, caches and build output.
	rm -rf $(VENV) dist build .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
