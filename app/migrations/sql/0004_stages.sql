-- The text of an entity's id, as stages/identity.py has it: one part as it is, several joined by '/', which is escaped.
create function tidemill.entity_id(entity jsonb, parts text[]) returns text
language sql immutable
as $$
    select case when cardinality(parts) = 1 then entity ->> parts[1]
    else (select string_agg(replace(replace(entity ->> part.name, '\', '\\'), '/', '\/'), '/' order by part.place)
          from unnest(parts) with ordinality part (name, place)) end
$$;

-- Which shard an entity belongs to (S13), as stages/identity.py has it.
create function tidemill.shard(entity_id text) returns smallint
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select (('x' || substr(md5(entity_id), 1, 8))::bit(32)::bigint % shards)::smallint from tidemill.sharding
$$;

-- What has changed, of two lists; '{*}' is everything, null is nothing.
create function tidemill.joined_fields(known text[], new text[]) returns text[]
language sql immutable
as $$
    select case
        when known is null then new
        when new is null or known = '{*}' then known
        when new = '{*}' then new
        else array(select unnest(known) union select unnest(new) order by 1)
    end
$$;

-- The merge rule of the stage queue (S2, S10), and the only place that has it. Offers entities to stages, at a time each;
-- returns how many entries are new or earlier than before. An entry that waits takes the earliest time; one that is being
-- visited, or is parked, remembers that it was asked for again. In the low lane, the main one is left as it is (S16).
create function tidemill.offer_visits(
    kind text,
    entity_ids text[],
    stages text[],
    times timestamptz[],
    low boolean default false,
    fields text[] default null,
    hops smallint[] default null,
    chains text[] default null
) returns bigint
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    moved bigint;
    shards integer;
begin
    if exists (select from unnest(entity_ids) id where length(id) not between 1 and 500 or id is null) then
        raise exception 'the id of a watched entity must have 1 to 500 characters' using errcode = 'program_limit_exceeded';
    end if;
    select sharding.shards into shards from tidemill.sharding;
    with offered as (
        select entity_id, stage, min(time) as time, max(hop) as hop, max(array[lpad(hop::text, 5, '0'), chain]) as longest,
               -- Written twice by one statement (foreign keys do so), it is not asked which difference was which.
               case when bool_or(field = '{*}') or min(field) <> max(field) then '{*}' else max(field) end as fields
        from unnest(entity_ids, stages, times, fields, hops, chains) as each (entity_id, stage, time, field, hop, chain)
        group by entity_id, stage
    ), merged as (
        insert into tidemill.stage_visit as old
            (kind, entity_id, stage, shard, queue, due_at, low_at, fields, hops, chain)
        select offer_visits.kind, entity_id, stage,
               ('x' || substr(md5(entity_id), 1, 8))::bit(32)::bigint % shards,
               'stage.' || offer_visits.kind || '.' || stage,
               case when not low then time end, case when low then time end, fields::text[], coalesce(hop, 0), longest[2]
        from offered order by entity_id collate "C", stage collate "C"
        on conflict (kind, entity_id, stage) do update set
            due_at = case when old.state = 'waiting' then least(old.due_at, excluded.due_at) else old.due_at end,
            low_at = case when old.state = 'waiting' then least(old.low_at, excluded.low_at) else old.low_at end,
            fields = case when old.state = 'waiting' then tidemill.joined_fields(old.fields, excluded.fields) else old.fields end,
            hops = case when old.state = 'waiting' then greatest(old.hops, excluded.hops) else old.hops end,
            chain = case when old.state = 'waiting' and excluded.hops > old.hops then excluded.chain else old.chain end,
            again_at = case when old.state = 'waiting' then null else least(old.again_at, excluded.due_at) end,
            again_low_at = case when old.state = 'waiting' then null else least(old.again_low_at, excluded.low_at) end,
            again_fields = case when old.state = 'waiting' then null else tidemill.joined_fields(old.again_fields, excluded.fields) end,
            again_hops = case when old.state = 'waiting' then 0 else greatest(old.again_hops, excluded.hops) end,
            again_chain = case when old.state = 'waiting' then null
                               when excluded.hops > old.again_hops then excluded.chain else old.again_chain end
        -- What changes nothing leaves the row as it is; it stays locked all the same.
        where case when old.state = 'waiting'
              then (excluded.due_at < old.due_at) is not false and excluded.due_at is not null
                   or (excluded.low_at < old.low_at) is not false and excluded.low_at is not null
                   or excluded.hops > old.hops
                   or tidemill.joined_fields(old.fields, excluded.fields) is distinct from old.fields
              else (excluded.due_at < old.again_at) is not false and excluded.due_at is not null
                   or (excluded.low_at < old.again_low_at) is not false and excluded.low_at is not null
                   or excluded.hops > old.again_hops
                   or tidemill.joined_fields(old.again_fields, excluded.fields) is distinct from old.again_fields
              end
        returning 1
    )
    select count(*) into moved from merged;
    return moved;
end
$$;

-- Puts an entity into the queue of a stage, from any language: docs/howto/watch-entities.md
create function tidemill.offer(kind text, stage text, entity_id text, visit_time timestamptz default null, low boolean default false)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from tidemill.stage known
                   where known.kind = offer.kind and known.name = offer.stage and known.removed_at is null) then
        raise exception 'no stage % of % is known', coalesce(quote_literal(stage), 'null'), coalesce(quote_literal(kind), 'null')
            using errcode = 'invalid_parameter_value',
                  hint = 'Check the names. A worker makes its stages known when it starts, as "tidemill migrate" does.';
    end if;
    if visit_time not between '0002-01-01Z' and '9998-12-31Z' then
        raise exception 'visit_time % must lie between the years 2 and 9998', visit_time
            using errcode = 'invalid_parameter_value';
    end if;
    return tidemill.offer_visits(kind, array[entity_id], array[stage], array[coalesce(visit_time, clock_timestamp())], low) > 0;
end
$$;

-- Entities that are gone are in no queue, have no state and are worked on by nobody. Lock order: queue, guards, states.
create function tidemill.forget_entities(kind text, entity_ids text[]) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform from tidemill.stage_visit each
    where each.kind = forget_entities.kind and each.entity_id = any (entity_ids)
    order by each.entity_id, each.stage for update;
    delete from tidemill.stage_visit each where each.kind = forget_entities.kind and each.entity_id = any (entity_ids);
    perform from tidemill.entity_guard each
    where each.kind = forget_entities.kind and each.entity_id = any (entity_ids) order by each.entity_id for update;
    delete from tidemill.entity_guard each where each.kind = forget_entities.kind and each.entity_id = any (entity_ids);
    delete from tidemill.stage_state each where each.kind = forget_entities.kind and each.entity_id = any (entity_ids);
end
$$;

-- S7: the version of an entity moves with every write, whoever makes it.
create function tidemill.entity_versioned() returns trigger
language plpgsql
as $$
begin
    new.version := old.version + 1;
    return new;
end
$$;

-- The same as an expression, for what cannot be made jsonb.
create function tidemill.entity_key(parts text[]) returns text
language sql immutable
as $$
    select case when cardinality(parts) = 1 then format('%I::text', parts[1])
    else (select string_agg(format($e$replace(replace(%I::text, '\', '\\'), '/', '\/')$e$, part.name), $e$ || '/' || $e$
                            order by part.place)
          from unnest(parts) with ordinality part (name, place)) end
$$;

-- The triggers of a watched table. Arguments: the kind, then the columns of the primary key. A row as jsonb costs the
-- least, but json may hold what jsonb cannot: then the keys are read alone, and everything is taken to have changed.
create function tidemill.entity_inserted() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    parts text[] := tg_argv[1:];
    ids text[];
begin
    begin
        ids := array(select tidemill.entity_id(to_jsonb(each), parts) from new_rows each);
    exception when data_exception or program_limit_exceeded then
        execute format('select array(select %s from new_rows)', tidemill.entity_key(parts)) into ids;
    end;
    if cardinality(ids) > 0 then
        perform tidemill.offer_visits(
            tg_argv[0], ids, array_fill('system'::text, array[cardinality(ids)]),
            array_fill(clock_timestamp(), array[cardinality(ids)]),
            fields => array_fill('{*}'::text, array[cardinality(ids)]));
    end if;
    return null;
end
$$;

-- Whether a table changes more of a row than a statement says: generated columns, triggers before the update.
create function tidemill.derives(relation oid) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select exists (select from pg_attribute where attrelid = relation and attgenerated <> '')
        or exists (select from pg_trigger where tgrelid = relation and not tgisinternal and tgenabled <> 'D'
                   and tgtype & 19 = 19 and tgname <> 'zz_tidemill_version')
$$;

create function tidemill.entity_updated() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    parts text[] := tg_argv[1:];
    saving text := current_setting('tidemill.saving', true);
    derived text[];
    gone text[];
    ids text[];
    changes text[];
begin
    -- Our own save asks the other stages itself. It says so for one statement, which is none within another's trigger,
    -- and which fields it saves ('on': all that can change): what the table itself derives from these, nobody was asked
    -- about.
    if saving <> '' and pg_trigger_depth() = 1 then
        perform set_config('tidemill.saving', '', true);
        if saving <> 'on' and tidemill.derives(tg_relid) then
            derived := array(select distinct field from tidemill.stage known cross join unnest(known.watches) field
                             where known.kind = tg_argv[0] and known.removed_at is null and not saving::jsonb ? field);
        end if;
        if derived is null or derived = '{}' then
            return null;
        end if;
    end if;
    begin
        gone := array(select tidemill.entity_id(to_jsonb(each), parts) from old_rows each
                      except select tidemill.entity_id(to_jsonb(each), parts) from new_rows each);
        select array_agg(id), array_agg(fields::text) into ids, changes from (
            select entity.id, case when was.id is null then '{*}' else array(
                select field.key from jsonb_each(entity.columns) field
                where field.value is distinct from was.columns -> field.key and field.key <> 'version'
                      and (derived is null or field.key = any (derived))
                order by 1) end as fields
            from (select tidemill.entity_id(to_jsonb(each), parts) as id, to_jsonb(each) as columns from new_rows each) entity
            left join (select tidemill.entity_id(to_jsonb(each), parts) as id, to_jsonb(each) as columns from old_rows each) was
                on was.id = entity.id
        ) changed where derived is null or fields::text <> '{}';
    exception when data_exception or program_limit_exceeded then
        execute format('select array(select %1$s from old_rows except select %1$s from new_rows), '
                       'array(select %1$s from new_rows)', tidemill.entity_key(parts)) into gone, ids;
        changes := array_fill(coalesce(derived::text, '{*}'), array[cardinality(ids)]);
    end;
    -- A changed id is the end of one entity and the beginning of another.
    if cardinality(gone) > 0 then
        perform tidemill.forget_entities(tg_argv[0], gone);
    end if;
    if cardinality(ids) > 0 then
        perform tidemill.offer_visits(
            tg_argv[0], ids, array_fill('system'::text, array[cardinality(ids)]),
            array_fill(clock_timestamp(), array[cardinality(ids)]), fields => changes);
    end if;
    return null;
end
$$;

create function tidemill.entity_deleted() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    gone text[];
begin
    execute format('select array(select %s from old_rows)', tidemill.entity_key(tg_argv[1:])) into gone;
    if cardinality(gone) > 0 then
        perform tidemill.forget_entities(tg_argv[0], gone);
    end if;
    return null;
end
$$;

create function tidemill.entity_truncated() returns trigger
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    -- As tidemill.forget_entities, but for millions, which no array holds.
    perform from tidemill.stage_visit each where each.kind = tg_argv[0] order by each.entity_id, each.stage for update;
    delete from tidemill.stage_visit each where each.kind = tg_argv[0];
    perform from tidemill.entity_guard each where each.kind = tg_argv[0] order by each.entity_id for update;
    delete from tidemill.entity_guard each where each.kind = tg_argv[0];
    delete from tidemill.stage_state each where each.kind = tg_argv[0];
    return null;
end
$$;

-- Watches a table: docs/howto/watch-entities.md. May be called again, and after the table or its key was renamed.
create function tidemill.watch(relation regclass, kind text default null) returns void
language plpgsql
as $$
#variable_conflict use_column
declare
    own_name text;
    own_schema text;
    parts text[];
    wrong text;
    named text;
    before text;
begin
    select rel.relname, nsp.nspname into own_name, own_schema
    from pg_catalog.pg_class rel join pg_catalog.pg_namespace nsp on nsp.oid = rel.relnamespace
    where rel.oid = relation and (rel.relkind = 'p' or rel.relkind = 'r' and not exists (
        select from pg_catalog.pg_inherits inh where rel.oid in (inh.inhrelid, inh.inhparent))) and not rel.relispartition;
    if not found then
        raise exception '% is not a table of its own', relation using errcode = 'wrong_object_type',
            hint = 'Watch tables that inherit from none; of a partitioned table, the parent.';
    end if;
    named := coalesce(watch.kind, own_name);
    if named !~ '^[a-z][a-z0-9_]{0,59}$' then
        raise exception 'kind % must begin with a letter and hold only a-z, 0-9 and _, at most 60 of them', quote_literal(named)
            using errcode = 'invalid_parameter_value', hint = 'Give the table another kind: tidemill.watch(''…'', ''name'').';
    end if;
    select array_agg(att.attname::text order by place.n),
           string_agg(att.attname || ' ' || format_type(att.atttypid, att.atttypmod), ', ') filter (
               where att.atttypid not in ('text'::regtype, 'varchar'::regtype, 'int2'::regtype, 'int4'::regtype,
                                          'int8'::regtype, 'uuid'::regtype))
    into parts, wrong
    from pg_catalog.pg_index ind
    cross join unnest(ind.indkey) with ordinality place (number, n)
    join pg_catalog.pg_attribute att on att.attrelid = relation and att.attnum = place.number
    where ind.indrelid = relation and ind.indisprimary and place.n <= ind.indnkeyatts;
    if parts is null or wrong is not null then
        raise exception '% cannot be watched: its primary key %', relation,
            coalesce('holds ' || wrong, 'is missing') using errcode = 'invalid_table_definition',
            hint = 'The key of a watched table is made of text, varchar, integers and uuid.';
    end if;
    if not exists (select from pg_catalog.pg_attribute att where att.attrelid = relation and att.attname = 'version'
                   and att.attnotnull and att.atttypid in ('int4'::regtype, 'int8'::regtype) and not att.attisdropped) then
        raise exception '% cannot be watched: it has no column "version bigint not null default 1"', relation
            using errcode = 'invalid_table_definition', hint = 'Add it; a model gets it with the mixin Watched.';
    end if;
    select known.relation into before from tidemill.entity_kind known where known.kind = named for update;
    if before is distinct from format('%I.%I', own_schema, own_name) and to_regclass(before) is not null then
        raise exception 'kind % is that of table %', quote_literal(named), before using errcode = 'duplicate_object',
            hint = 'Give this table another kind: tidemill.watch(''…'', ''name'').';
    end if;
    select known.kind into before from tidemill.entity_kind known
    where known.kind <> named and known.relation = format('%I.%I', own_schema, own_name);
    if found then
        raise exception '% is watched as kind %', relation, quote_literal(before) using errcode = 'duplicate_object',
            hint = format('Its stages would hear of nothing any more. If that is meant: select tidemill.unwatch(%L);', before);
    end if;
    insert into tidemill.entity_kind (kind, relation) values (named, format('%I.%I', own_schema, own_name))
    on conflict (kind) do update set relation = excluded.relation;
    execute format('create or replace trigger zz_tidemill_version before update on %s for each row '
                   'when (new.version is distinct from old.version + 1) execute function tidemill.entity_versioned()', relation);
    execute format('create or replace trigger tidemill_inserted after insert on %s referencing new table as new_rows '
                   'for each statement execute function tidemill.entity_inserted(%s)', relation,
                   (select string_agg(quote_literal(word), ', ' order by n) from unnest(named || parts) with ordinality w (word, n)));
    execute format('create or replace trigger tidemill_updated after update on %s referencing old table as old_rows '
                   'new table as new_rows for each statement execute function tidemill.entity_updated(%s)', relation,
                   (select string_agg(quote_literal(word), ', ' order by n) from unnest(named || parts) with ordinality w (word, n)));
    execute format('create or replace trigger tidemill_deleted after delete on %s referencing old table as old_rows '
                   'for each statement execute function tidemill.entity_deleted(%s)', relation,
                   (select string_agg(quote_literal(word), ', ' order by n) from unnest(named || parts) with ordinality w (word, n)));
    execute format('create or replace trigger tidemill_truncated after truncate on %s '
                   'for each statement execute function tidemill.entity_truncated(%L)', relation, named);
end
$$;

-- Ends the watching of a kind, also of one whose table is gone: its visits, states and guards go too.
create function tidemill.unwatch(kind text) returns void
language plpgsql
as $$
declare
    relation regclass;
    name text;
begin
    select to_regclass(known.relation) into relation from tidemill.entity_kind known where known.kind = unwatch.kind for update;
    if not found then
        raise exception 'no kind % is watched', coalesce(quote_literal(unwatch.kind), 'null')
            using errcode = 'invalid_parameter_value', hint = 'select kind, relation from tidemill.entity_kind';
    end if;
    if relation is not null then
        foreach name in array array['zz_tidemill_version', 'tidemill_inserted', 'tidemill_updated', 'tidemill_deleted',
                                    'tidemill_truncated'] loop
            execute format('drop trigger if exists %I on %s', name, relation);
        end loop;
    end if;
    delete from tidemill.stage_visit each where each.kind = unwatch.kind;
    delete from tidemill.entity_guard each where each.kind = unwatch.kind;
    delete from tidemill.stage_state each where each.kind = unwatch.kind;
    delete from tidemill.entity_kind known where known.kind = unwatch.kind;
end
$$;

-- Everybody may call a new function, unless this is said. Triggers fire all the same, whoever writes.
revoke all on function tidemill.entity_id, tidemill.entity_key, tidemill.derives, tidemill.shard, tidemill.joined_fields,
    tidemill.offer_visits, tidemill.offer, tidemill.forget_entities, tidemill.entity_versioned, tidemill.entity_inserted,
    tidemill.entity_updated, tidemill.entity_deleted, tidemill.entity_truncated, tidemill.watch, tidemill.unwatch from public;
