// Opens records with aws-kinesis-agg, as a Lambda function in Node does.
//
// A line of standard input is a Kinesis record: sequence number, partition key in base64, and data in base64. A line of
// standard output is a user record: sequence number, partition key in base64, explicit hash key or "-", and data in base64.
"use strict";

const fs = require("fs");
const { deaggregateSync } = require("aws-kinesis-agg");

const lines = fs.readFileSync(0, "utf8").split("\n").filter((line) => line !== "");
const opened = [];
for (const line of lines) {
  const [sequenceNumber, key, data] = line.split(" ");
  const record = { sequenceNumber, partitionKey: Buffer.from(key, "base64").toString(), data };
  deaggregateSync(record, true, (error, userRecords) => {
    if (error) {
      throw error;
    }
    for (const one of userRecords) {
      const place = one.explicitPartitionKey === undefined ? "-" : one.explicitPartitionKey;
      opened.push([sequenceNumber, Buffer.from(one.partitionKey).toString("base64"), place, one.data].join(" "));
    }
  });
}
fs.writeFileSync(1, opened.map((line) => line + "\n").join(""));
