-- Puts a job in from any language, with the guarantees of enqueue() in Python: docs/howto/enqueue-from-sql.md
create or replace function tidemill.enqueue(
    task text,
    args json default '[]',
    kwargs json default '{}',
    queue text default null,
    key text default null,
    eta timestamptz default null,
    priority integer default 0,
    expires timestamptz default null,
    max_attempts integer default null
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    known tidemill.known_task;
    size integer := octet_length(args::text) + octet_length(kwargs::text);
    job_id bigint;
begin
    if json_typeof(args) is distinct from 'array' then
        raise exception 'args must be a JSON array' using errcode = 'invalid_parameter_value';
    end if;
    if json_typeof(kwargs) is distinct from 'object' then
        raise exception 'kwargs must be a JSON object' using errcode = 'invalid_parameter_value';
    end if;
    if size > 1048576 then
        raise exception 'the arguments of % take % bytes of JSON, more than 1048576', task, size
            using errcode = 'program_limit_exceeded', hint = 'Store them and pass their id.';
    end if;
    if priority is null or priority not between -32767 and 32767 then
        raise exception 'priority % must lie between -32767 and 32767', priority
            using errcode = 'invalid_parameter_value';
    end if;
    if max_attempts not between 1 and 32767 then
        raise exception 'max_attempts % must lie between 1 and 32767', max_attempts
            using errcode = 'invalid_parameter_value';
    end if;
    if length(key) not between 1 and 500 or length(queue) not between 1 and 500 or '' in (btrim(key), btrim(queue)) then
        raise exception 'key and queue must have 1 to 500 characters' using errcode = 'invalid_parameter_value';
    end if;
    if strpos(coalesce(queue, ''), ',') > 0 then
        raise exception 'queue % has a comma', quote_literal(queue)
            using errcode = 'invalid_parameter_value', hint = 'With -Q, no worker could name it.';
    end if;
    -- Not every client can read what Postgres can hold: a job that nobody can read would stop all others.
    if eta not between '0002-01-01Z' and '9998-12-31Z' or expires not between '0002-01-01Z' and '9998-12-31Z' then
        raise exception 'eta % and expires % must lie between the years 2 and 9998', eta, expires
            using errcode = 'invalid_parameter_value';
    end if;
    select * into known from tidemill.known_task where known_task.name = enqueue.task;
    if not found then
        raise exception 'no task named % is known', coalesce(quote_literal(task), 'null')
            using errcode = 'invalid_parameter_value',
                  hint = 'Check the name. A worker makes its tasks known when it starts, as "tidemill migrate" does.';
    end if;
    if coalesce(queue, known.queue) ~ '^(reactive|stage|actor)[.]' then
        raise exception 'jobs cannot go to queue %', coalesce(queue, known.queue)
            using errcode = 'invalid_parameter_value', hint = 'It is worked off by others, who know nothing of jobs.';
    end if;
    insert into tidemill.job as old (task, args, kwargs, queue, key, due_at, rank, expires_at, max_attempts)
    values (task, args, kwargs, coalesce(queue, known.queue), key, coalesce(eta, now()), -priority, expires,
            coalesce(max_attempts, known.max_attempts))
    on conflict (key) where key is not null and state = 'waiting'
    do update set
        task = excluded.task, args = excluded.args, kwargs = excluded.kwargs, queue = excluded.queue,
        max_attempts = excluded.max_attempts, expires_at = excluded.expires_at,
        enqueued_at = excluded.enqueued_at, attempts = 0, error = null, trace = excluded.trace,
        due_at = least(old.due_at, excluded.due_at), rank = least(old.rank, excluded.rank)
    returning old.id into job_id;
    return job_id;
end
$$;
