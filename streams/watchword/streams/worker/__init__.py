"""The verifier: reads `join.requests`, has each request judged, answers, and only then moves on.

It is a faust app with faust's own Kafka client off (`app`). `source` feeds its agent from a plain
aiokafka consumer, `batches` has the requests judged, `answers` sends what came out, and `prefix`
says which offsets may be committed. `run` is the process around it.
"""
