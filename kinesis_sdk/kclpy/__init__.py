"""The classes of amazon_kclpy, without Java: replace ``amazon_kclpy`` with ``kinesis_sdk.kclpy`` in the imports.

    from kinesis_sdk.kclpy import kcl
    from kinesis_sdk.kclpy.v3 import processor

    class RecordProcessor(processor.RecordProcessorBase):
        ...

    if __name__ == "__main__":
        kcl.KCLProcess(RecordProcessor()).run()

Modules, classes and messages are those of amazon_kclpy 3.x, so a program that uses them runs under ``kinesis-sdk multilang`` and under
Amazon's MultiLangDaemon. The same processor runs inside the worker's process, without a pipe, with
``kinesis-sdk multilang --in-process module:RecordProcessor``. Nothing but the standard library is imported here.

Differences from amazon_kclpy:

| where | amazon_kclpy 3.2 | here |
| --- | --- | --- |
| an exception in a callback | always printed and answered as success: the next checkpoint passes the batch | the same by default; ``KCLProcess(…, on_error="exit")`` ends the process without an answer |
| standard input | decoded with the locale's encoding | always UTF-8 |
| end of input while a checkpoint waits | JSONDecodeError | ``CheckpointError("ShutdownException")``, which no program retries |
| a message that is not the answer to a checkpoint | dropped; the daemon then waits forever for its status | processed after the current callback |
| unknown fields of a message | an object without ``action`` ends the process | ignored |
| ``CheckpointError`` | ``value`` | ``value`` and ``retryable`` |
"""
