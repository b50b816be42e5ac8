-- Whatever an evaluation rests on moves the generation of its task, and with it this stream.
create function tidemill.reactive_task_changed() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into tidemill.reactive_event (task) select task.name from changed as task;
    perform tidemill.ctl_hint();
    return null;
end
$$;

-- Says to whoever listens that there is something to follow, at most every 20 ms for the whole cluster: a NOTIFY in
-- every transaction would make all of them wait for each other when they commit. The moment is kept in a sequence,
-- which no transaction locks; who comes too early is found by polling.
create sequence tidemill.ctl_hinted;

create function tidemill.ctl_hint() returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    now_ms bigint := (extract(epoch from clock_timestamp()) * 1000)::bigint;
begin
    if abs(now_ms - (select last_value from tidemill.ctl_hinted)) >= 20 then
        perform setval('tidemill.ctl_hinted', now_ms);
        perform pg_notify('tidemill_ctl', '');
    end if;
end
$$;

create function tidemill.reactive_task_renewed() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into tidemill.reactive_event (task)
    select task.name from changed as task join before on before.name = task.name
    where task.generation <> before.generation;
    if found then
        perform tidemill.ctl_hint();
    end if;
    return null;
end
$$;

create function tidemill.ctl_change_hinted() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform tidemill.ctl_hint();
    return null;
end
$$;

create trigger reactive_task_inserted after insert on tidemill.reactive_task
referencing new table as changed for each statement execute function tidemill.reactive_task_changed();

create trigger reactive_task_updated after update on tidemill.reactive_task
referencing old table as before new table as changed
for each statement execute function tidemill.reactive_task_renewed();

create trigger ctl_change_hinted after insert on tidemill.ctl_change
for each statement execute function tidemill.ctl_change_hinted();

revoke all on function tidemill.reactive_task_changed, tidemill.reactive_task_renewed, tidemill.ctl_hint,
    tidemill.ctl_change_hinted from public;
