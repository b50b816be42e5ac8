"""procrastinate: a backlog of no-ops, worked off by one worker with ten concurrent jobs, its fastest usual setting."""

import asyncio
import json
import os
import sys
import time

import procrastinate

arguments = json.loads(sys.argv[1])
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_DATABASE_URL"]))
began: list[float] = []


@app.task(name="noop")
async def noop() -> None:
    if not began:
        began.append(time.perf_counter())


async def main() -> None:
    count = arguments["count"]
    async with app.open_async():
        connector = app.connector
        await connector.execute_query_async("drop schema if exists bench_procrastinate cascade")
        await connector.execute_query_async("create schema bench_procrastinate")
    separate = procrastinate.PsycopgConnector(
        conninfo=os.environ["BENCH_DATABASE_URL"], kwargs={"options": "-c search_path=bench_procrastinate"}
    )
    with app.replace_connector(separate) as own:
        async with own.open_async():
            await own.schema_manager.apply_schema_async()
            for _ in range(0, count, 1000):
                await noop.batch_defer_async(*({} for _ in range(min(1000, count))))
            # What autovacuum would have done to a queue of some age; without it the peer plans blindly.
            await separate.execute_query_async("analyze")
            await own.run_worker_async(concurrency=arguments["concurrency"], wait=False, install_signal_handlers=False)
            ended = time.perf_counter()
            left = await separate.execute_query_one_async(
                "select count(*) as left from procrastinate_jobs where status <> 'succeeded'"
            )
    assert left["left"] == 0
    print(json.dumps({"rate": count / (ended - began[0])}))


asyncio.run(main())
