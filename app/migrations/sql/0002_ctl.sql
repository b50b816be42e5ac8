-- Whoever changes the control table is recorded, by plain SQL too; `id` and `xid` say in which order and transaction.
create function tidemill.ctl_changed() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    insert into tidemill.ctl_change (entity, parameter, value, previous, restated)
    values (new.entity, new.parameter, new.value,
            case when tg_op = 'UPDATE' then old.value end,
            case when tg_op = 'UPDATE' then new.epoch <> old.epoch else false end);
    return null;
end
$$;

create trigger ctl_inserted after insert on tidemill.ctl
for each row execute function tidemill.ctl_changed();

create trigger ctl_updated after update on tidemill.ctl
for each row when (old.value is distinct from new.value) execute function tidemill.ctl_changed();

-- Moves parameters forward; all of them, or none. Returns those that moved: the same value again is no change.
create function tidemill.advance_many(entities text[], parameters text[], moments timestamptz[])
returns table (entity text, parameter text, value timestamptz)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    wrong record;
begin
    if cardinality(entities) is distinct from cardinality(parameters)
        or cardinality(entities) is distinct from cardinality(moments)
    then
        raise exception 'advance_many takes three arrays of one length' using errcode = 'invalid_parameter_value';
    end if;
    select * into wrong from unnest(entities, parameters, moments) as asked (entity, parameter, moment)
    where asked.entity is null or asked.parameter is null or asked.moment is null
        or length(asked.entity) not between 1 and 200 or length(asked.parameter) not between 1 and 200
        or asked.entity ~ '[[:cntrl:]]' or asked.parameter ~ '[[:cntrl:]]'
        or '' in (btrim(asked.entity), btrim(asked.parameter))
    limit 1;
    if found then
        raise exception 'advance(%, %, %): entity and parameter have 1 to 200 characters, and the value is a moment',
            coalesce(quote_literal(wrong.entity), 'null'), coalesce(quote_literal(wrong.parameter), 'null'),
            coalesce(quote_literal(wrong.moment), 'null')
            using errcode = 'invalid_parameter_value';
    end if;
    select * into wrong from unnest(entities, parameters, moments) as asked (entity, parameter, moment)
    where asked.moment < '0002-01-01Z' or asked.moment > now() + interval '10 years' limit 1;
    if found then
        raise exception '%.% cannot be advanced to %: that is before the year 2, or more than 10 years ahead',
            wrong.entity, wrong.parameter, wrong.moment
            using errcode = 'TMFAR',
                  hint = 'Nothing could be advanced after it. Where it is meant, restate it with a reason.';
    end if;
    -- In the order of keys, so that two programs that advance the same parameters wait for each other, never both.
    return query
    insert into tidemill.ctl as old (entity, parameter, value)
    select asked.entity, asked.parameter, max(asked.moment)
    from unnest(entities, parameters, moments) as asked (entity, parameter, moment)
    group by 1, 2 order by 1, 2
    on conflict (entity, parameter) do update
    set value = excluded.value, version = old.version + 1, changed_at = clock_timestamp()
    where excluded.value > old.value
    returning old.entity, old.parameter, old.value;
    select ctl.entity, ctl.parameter, ctl.value, asked.moment into wrong
    from unnest(entities, parameters, moments) as asked (entity, parameter, moment)
    join tidemill.ctl as ctl on ctl.entity = asked.entity and ctl.parameter = asked.parameter
    where asked.moment < ctl.value limit 1;
    if found then
        raise exception '%.% is at % and cannot be advanced back to %',
            wrong.entity, wrong.parameter, wrong.value, wrong.moment
            using errcode = 'TMBCK',
                  hint = 'A value moves back only by restating it with a reason, which lists what depends on it.';
    end if;
end
$$;

create function tidemill.advance(entity text, parameter text, moment timestamptz) returns boolean
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
    select exists (select from tidemill.advance_many(array[entity], array[parameter], array[moment]))
$$;

revoke all on function tidemill.advance, tidemill.advance_many, tidemill.ctl_changed from public;
