"""The demo: a rig whose every process is killed, and its account on Spark.

```
 sensors ─loop─► analysers ─shared memory─┐                       ┌─► consumers, subscription `dashboard`
 gateways (Pulsar clients) ──TCP──────────┴─► holdfast serve ─────┼─► Spark stream, once each ─► `calibrated`
                                              topic `measurements`└─► archive · measure · audit ─► report page
```

Sensors, analysers, gateways, consumers, the broker and the Spark job get SIGKILL at random moments and come
back. Live frames go through loops, where newer ones displace older ones. Each analyser and gateway writes
down what was confirmed to it. At the end Spark counts what is there, and the frames are accounted for.
"""
