-- What holds of a row whoever changes it: its version moves with every change, its epoch when the value moved back.
create function tidemill.ctl_changing() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if (new.entity, new.parameter) is distinct from (old.entity, old.parameter) then
        raise exception '%.% cannot be renamed to %.%', old.entity, old.parameter, new.entity, new.parameter
            using errcode = 'invalid_parameter_value',
                  hint = 'Advance the new name: whoever follows the old one would never learn that it is gone.';
    end if;
    new.version := old.version + 1;
    new.epoch := greatest(new.epoch, old.epoch + (new.value < old.value)::integer);
    new.changed_at := clock_timestamp();
    return new;
end
$$;

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

create trigger ctl_updating before update on tidemill.ctl
for each row when (old.* is distinct from new.*) execute function tidemill.ctl_changing();

create function tidemill.ctl_kept() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception '%.% cannot be deleted: no task that rests on it would hear of it', old.entity, old.parameter
        using errcode = 'restrict_violation', hint = 'Let it stay; what nobody names costs nothing.';
end
$$;

create trigger ctl_deleting before delete on tidemill.ctl
for each row execute function tidemill.ctl_kept();

create trigger ctl_inserted after insert on tidemill.ctl
for each row execute function tidemill.ctl_changed();

create trigger ctl_updated after update on tidemill.ctl
for each row when (old.value is distinct from new.value or old.epoch is distinct from new.epoch)
execute function tidemill.ctl_changed();

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
    if entities is null or parameters is null or moments is null
        or cardinality(entities) <> cardinality(parameters) or cardinality(entities) <> cardinality(moments)
    then
        raise exception 'advance_many takes three arrays of one length, not of %, % and %',
            cardinality(entities), cardinality(parameters), cardinality(moments)
            using errcode = 'invalid_parameter_value';
    end if;
    select * into wrong from unnest(entities, parameters, moments) as asked (entity, parameter, moment)
    where asked.entity is null or asked.parameter is null or asked.moment is null
        or length(asked.entity) > 200 or length(asked.parameter) > 200
        or '' in (btrim(asked.entity), btrim(asked.parameter))
        -- Not [:cntrl:], which depends on the locale of the database.
        or asked.entity ~ '[\u0001-\u001f\u007f-\u009f]' or asked.parameter ~ '[\u0001-\u001f\u007f-\u009f]'
    limit 1;
    if found then
        raise exception 'advance(%, %, %): entity and parameter must be 1 to 200 characters, none of them a control '
            'character, and the value a moment',
            coalesce(quote_literal(left(wrong.entity, 250)), 'null'),
            coalesce(quote_literal(left(wrong.parameter, 250)), 'null'),
            coalesce(quote_literal(wrong.moment), 'null')
            using errcode = 'invalid_parameter_value';
    end if;
    select * into wrong from unnest(entities, parameters, moments) as asked (entity, parameter, moment)
    where asked.moment < '0002-01-01Z' or asked.moment > now() + interval '10 years' limit 1;
    if found and wrong.moment < '0002-01-01Z' then
        raise exception '%.% cannot be advanced to %: that is before the year 2',
            wrong.entity, wrong.parameter, wrong.moment using errcode = 'invalid_parameter_value';
    elsif found then
        raise exception '%.% cannot be advanced to %: that is more than 10 years ahead',
            wrong.entity, wrong.parameter, wrong.moment
            using errcode = 'TMFAR',
                  hint = 'Nothing could be advanced after it. Where it is meant, restate it with a reason.';
    end if;
    -- In the order of bytes, which is Python's too: two programs that advance the same parameters wait for each other,
    -- never both.
    return query
    insert into tidemill.ctl as old (entity, parameter, value)
    select asked.entity, asked.parameter, max(asked.moment)
    from unnest(entities, parameters, moments) as asked (entity, parameter, moment)
    group by asked.entity, asked.parameter
    order by asked.entity collate "C", asked.parameter collate "C"
    on conflict (entity, parameter) do update set value = excluded.value
    where excluded.value > old.value
    returning old.entity, old.parameter, old.value;
    -- The rows are locked, also those that did not move: what is read now stays.
    select ctl.entity, ctl.parameter, ctl.value, asked.moment into wrong
    from (
        select entity, parameter, max(moment) as moment
        from unnest(entities, parameters, moments) as given (entity, parameter, moment)
        group by entity, parameter
    ) as asked
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

revoke all on function tidemill.advance, tidemill.advance_many, tidemill.ctl_changed, tidemill.ctl_changing,
tidemill.ctl_kept from public;
