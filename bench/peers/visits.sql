-- What a visit of the hand-written prototype, of pgqueuer and of the floor works on: an entity, the state that is kept
-- beside it, both with versions; and the entry of a queue that has an entity once, with a lease for whoever works on it.
drop schema if exists bench_visits cascade;
create schema bench_visits;
set search_path = bench_visits;

create table entity (
    id text collate "C" primary key,
    visits integer not null,
    writes integer not null,
    name text not null,
    version bigint not null default 1
);
create table state (
    entity_id text collate "C",
    stage text collate "C",
    type_url text not null,
    value bytea not null,
    version bigint not null default 1,
    primary key (entity_id, stage)
) with (fillfactor = 85);
create table entry (
    queue text collate "C",
    entity_id text collate "C",
    due_at timestamptz not null,
    pass_key uuid,
    lease_until timestamptz,
    attempts smallint not null default 0,
    primary key (queue, entity_id)
) with (fillfactor = 70);
-- What is to be published of each save.
create table outbox (
    id bigint generated always as identity primary key,
    entity_id text not null,
    version bigint not null,
    body json not null,
    kept bytea not null,
    saved_at timestamptz not null default clock_timestamp()
);
create index entry_waiting on entry (queue, due_at, entity_id) where pass_key is null;

-- The steps of a visit for up to a hundred entities, one statement each, and nothing between them and the tables:
-- claim, load, decide, save what has not changed meanwhile, note what was saved, finish. As many as it returns were visited.
-- LIMIT is a literal: as a parameter of a generic plan it turns into a sequential scan.
create function work_off() returns integer language plpgsql as $$
declare
    mine uuid := gen_random_uuid();
    claimed text[];
    ids text[];
    counts integer[];
    versions bigint[];
    marks bytea[];
    mark_versions bigint[];
    finished integer;
begin
    with taken as materialized (
        select entity_id from bench_visits.entry where queue = 'count' and pass_key is null and due_at <= now()
        order by due_at, entity_id limit 100 for update skip locked
    ), claimed as (
        update bench_visits.entry each
        set pass_key = mine, lease_until = now() + interval '60 s', attempts = attempts + 1
        from taken where each.queue = 'count' and each.entity_id = taken.entity_id
        returning each.entity_id
    )
    select array_agg(entity_id order by entity_id) into claimed from claimed;
    select array_agg(each.id), array_agg(each.visits + 1), array_agg(each.version),
           array_agg(int8send(('x' || encode(kept.value, 'hex'))::bit(64)::bigint + 1)), array_agg(kept.version)
    into ids, counts, versions, marks, mark_versions
    from bench_visits.entity each
    join bench_visits.state kept on kept.entity_id = each.id and kept.stage = 'count'
    where each.id = any (claimed);
    with given as (
        select * from unnest(ids, counts, versions, marks, mark_versions) given (id, visits, version, mark, mark_version)
    ), saved as (
        update bench_visits.entity each set visits = given.visits, version = each.version + 1
        from given where each.id = given.id and each.version = given.version
        returning each.id, each.version, to_json(each) as body
    ), told as (
        insert into bench_visits.outbox (entity_id, version, body, kept)
        select saved.id, saved.version, saved.body, given.mark from saved join given on given.id = saved.id
    ), kept as (
        update bench_visits.state each set value = given.mark, version = each.version + 1
        from given where each.entity_id = given.id and each.stage = 'count' and each.version = given.mark_version
        returning each.entity_id
    ), finished as (
        delete from bench_visits.entry each using saved
        where each.queue = 'count' and each.entity_id = saved.id and each.pass_key = mine
        returning 1
    )
    select count(*) into finished from finished;
    if finished <> coalesce(cardinality(claimed), 0) then
        raise exception '% of % visits were saved', finished, cardinality(claimed);
    end if;
    return finished;
end
$$;

create procedure fill(count integer) language sql as $$
    insert into bench_visits.entity (id, visits, writes, name)
    select to_char(n, 'FM00000000'), 0, 0, 'thing ' || n from generate_series(1, count) n;
    insert into bench_visits.state (entity_id, stage, type_url, value)
    select id, 'count', 'type.googleapis.com/google.protobuf.Int64Value', int8send(1) from bench_visits.entity;
$$;

create procedure offer() language sql as $$
    insert into bench_visits.entry (queue, entity_id, due_at) select 'count', id, now() from bench_visits.entity;
$$;
