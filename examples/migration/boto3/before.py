"""Puts and reads with boto3 alone: what remains to be done by hand for a stream whose shards never change."""

# region program
import json
import time
from pathlib import Path

import boto3

kinesis = boto3.client("kinesis")  # 1

entries = [{"PartitionKey": "customer-7", "Data": b"1"}]  # 2
while entries:  # 3
    results = kinesis.put_records(StreamName="orders", Records=entries)["Records"]
    entries = [entry for entry, result in zip(entries, results) if "ErrorCode" in result]
    time.sleep(0.5 if entries else 0)

file = Path("positions.json")
positions = json.loads(file.read_text()) if file.exists() else {}
iterators = {}
for shard in kinesis.list_shards(StreamName="orders")["Shards"]:  # 4
    shard_id = shard["ShardId"]  # 5
    start = {"ShardIteratorType": "TRIM_HORIZON"}  # 6
    if shard_id in positions:
        start = {
            "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
            "StartingSequenceNumber": positions[shard_id],
        }
    answer = kinesis.get_shard_iterator(StreamName="orders", ShardId=shard_id, **start)
    iterators[shard_id] = answer["ShardIterator"]

while iterators:  # 7
    for shard_id, iterator in list(iterators.items()):
        page = kinesis.get_records(ShardIterator=iterator)
        for record in page["Records"]:  # 8
            print(record["PartitionKey"], record["Data"])  # 9
            positions[shard_id] = record["SequenceNumber"]
        file.write_text(json.dumps(positions))  # 10
        iterators[shard_id] = page.get("NextShardIterator")
        if iterators[shard_id] is None:
            del iterators[shard_id]
    time.sleep(1)
# endregion
