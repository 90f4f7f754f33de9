"""The demo: a rig whose every process is killed, and its account on Spark.

```
 sensors (processes) ──shared memory──┐                       ┌─► consumers, subscription `dashboard`
 gateways (Pulsar clients) ──TCP──────┴─► holdfast serve ─────┼─► Spark stream ──exactly once──► `calibrated`
                                          topic `measurements` └─► archive · measure · audit ──► report page
```

Sensors, gateways, consumers, the broker and the Spark job get SIGKILL at random moments and come back. Each
sensor and gateway writes down what was confirmed to it. At the end Spark counts what is there.
"""
