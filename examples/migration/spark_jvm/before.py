"""Reads with AWS Labs' connector for Spark; its jar has to be on Spark's class path (``spark-submit --jars …``)."""

import os

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()

# region program
endpoint = os.environ.get("AWS_ENDPOINT_URL", "https://kinesis.us-east-1.amazonaws.com")
flights = (
    spark.readStream.format("aws-kinesis")  # 1
    .option("kinesis.streamName", "flights")  # 2
    .option("kinesis.region", "us-east-1")  # 3
    .option("kinesis.endpointUrl", endpoint)  # 4
    .option("kinesis.startingPosition", "TRIM_HORIZON")  # 5
    .option("kinesis.consumerType", "GetRecords")  # 6
    .load()
)
lines = flights.selectExpr("partitionKey", "CAST(data AS STRING) AS line")  # 7
query = (
    lines.writeStream.format("json")
    .option("checkpointLocation", "checkpoint")  # 8
    .start("lines")  # 9
)
# endregion
query.processAllAvailable()
query.stop()
