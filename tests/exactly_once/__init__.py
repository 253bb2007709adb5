"""Producers, a stream, workers and databases in one random schedule in virtual time, judged by an oracle that counts effects.

`schedule` draws and plays a schedule, `producers` has the processes that put and `workers` those that read, `databases` the sinks, and `oracle`
compares the puts and the stream with the effects. `tests/once_model` proves the protocol of repetitions; this suite proves the code, end to end.
"""
