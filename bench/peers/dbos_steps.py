"""DBOS: workflows of ten steps each, so many at a time; the steps do nothing."""

import json
import logging
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
from dbos import DBOS, SetWorkflowID

arguments = json.loads(sys.argv[1])
url = os.environ["BENCH_DATABASE_URL"]
logging.disable(logging.WARNING)
dbos = DBOS(
    config={"name": "bench", "system_database_url": url, "dbos_system_schema": "bench_dbos", "log_level": "ERROR"}
)


@DBOS.step()
def step(number: int) -> int:
    return number + 1


@DBOS.workflow()
def chain(number: int, steps: int) -> int:
    for _ in range(steps):
        number = step(number)
    return number


def one(number: int) -> int:
    with SetWorkflowID(f"bench-{number}"):
        return chain(number, arguments["steps"])


def main() -> None:
    DBOS.launch()
    with ThreadPoolExecutor(arguments["threads"]) as pool:
        list(pool.map(one, range(-20, 0)))
        begun = time.perf_counter()
        values = list(pool.map(one, range(1, arguments["workflows"] + 1)))
        took = time.perf_counter() - begun
    assert values == [number + arguments["steps"] for number in range(1, arguments["workflows"] + 1)]
    DBOS.destroy()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop schema if exists bench_dbos cascade")
    print(json.dumps({"rate": arguments["workflows"] * arguments["steps"] / took}))


main()
