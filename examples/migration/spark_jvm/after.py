"""Reads with this package. Checkpoint and folder are new: the log in the old folder would make Spark skip the first batches."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()

# region program
flights = (
    spark.readStream.format("kinesis_sdk")  # 1
    .option("streamName", "flights")  # 2
    .option("region", "us-east-1")  # 3
    # 4: found by the region; endpointUrl is for another one
    .option("startingPosition", "TRIM_HORIZON")  # 5
    # 6: polling is the only way
    .option("columns", "partitionKey, data")  # the connector reads all
    .load()
)
lines = flights.selectExpr("partitionKey", "CAST(data AS STRING) AS line")  # 7
query = (
    lines.writeStream.format("json")
    .option("checkpointLocation", "new-checkpoint")  # 8: the old one cannot be read
    .start("new-lines")  # 9
)
# endregion
query.processAllAvailable()
query.stop()
