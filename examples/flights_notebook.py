# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Flights through Kinesis
#
# A notebook, kept as a Python file. JupyterLab opens it with the extension jupytext, and `jupytext --to notebook
# examples/flights_notebook.py` makes an `.ipynb` file. It puts 20,000 flights of 2001 into a stream, reads them back, and draws which
# airports are late. It starts a fake AWS of its own; on AWS, leave out the second cell and create a stream `flights`.

# %%
import json
import os
from collections import defaultdict

import boto3
from matplotlib import pyplot as plt

from kinesis_sdk import ConsumerConfig, Producer, RecordBatch, Worker
from kinesis_sdk.testing import FakeAws, FakeAwsServer
from kinesis_sdk.testing.flights import load_flights

# %%
aws = FakeAwsServer(FakeAws()).start()
os.environ |= {
    "AWS_ENDPOINT_URL": aws.endpoint_url,
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
}

# %% [markdown]
# ## Put
#
# The airport of departure is the partition key, so the flights of an airport stay in order.

# %%
boto3.client("kinesis").create_stream(StreamName="flights", ShardCount=4)
flights = load_flights()
with Producer() as producer:
    futures = producer.put_many("flights", [(flight.origin, flight.line) for flight in flights])
stats = producer.stats()
print(f"{len(futures):,} flights in {stats.kinesis_records_stored:,} Kinesis records")

# %% [markdown]
# ## Read
#
# `until="now"` ends the worker once it has processed what is in the stream.

# %%
delays: dict[str, list[int]] = defaultdict(list)


def handle(batch: RecordBatch) -> None:
    """Collect delays in minutes by airport."""
    for record in batch.records:
        delays[record.partition_key].append(json.loads(record.data)["delay"])


config = ConsumerConfig(initial_position="TRIM_HORIZON")
Worker("flights", application_name="notebook", handler=handle, config=config, until="now").run()
print(f"{sum(map(len, delays.values())):,} flights of {len(delays)} airports")

# %% [markdown]
# ## Draw

# %%
busiest = sorted(delays, key=lambda airport: -len(delays[airport]))[:12]
late = [100 * sum(delay > 15 for delay in delays[airport]) / len(delays[airport]) for airport in busiest]
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
axes.bar(busiest, late)
axes.set(title="Departures that are more than 15 minutes late", ylabel="%")
figure.savefig("late.png")

# %%
aws.stop()
