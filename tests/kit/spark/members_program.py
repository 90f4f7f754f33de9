"""Write with Spark to a cluster of brokers, and read the files of its members.

    python -m tests.kit.spark.members_program BROKER_URL TOPIC DIRECTORY...

Prints what it has read from each directory, as JSON: messages, different ones, and their sum.
"""

from __future__ import annotations

import json
import sys

from holdfast.pipeline import session

ROWS = 2_000


def main() -> None:
    url, topic, *directories = sys.argv[1:]
    spark = session("members", settings={"spark.log.level": "OFF", "spark.driver.bindAddress": "127.0.0.1"})
    rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) as value")
    rows.write.format("holdfast").options(**{"service.url": url, "topic": topic}).mode("append").save()
    found = []
    for directory in directories:
        read = spark.read.format("holdfast").option("path", directory).option("topic", topic).load()
        numbers = read.selectExpr("cast(cast(value as string) as bigint) as n")
        told = numbers.selectExpr("count(n)", "count(distinct n)", "sum(n)").collect()[0]
        found.append([int(each) for each in told])
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
