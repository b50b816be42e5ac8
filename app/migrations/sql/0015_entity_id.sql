-- Without a backslash in quotes, which is something else where standard_conforming_strings is off: there, nobody could
-- write a watched table.
create or replace function tidemill.entity_id(entity jsonb, parts text[]) returns text
language sql immutable
as $$
    select case when cardinality(parts) = 1 then entity ->> parts[1]
    else (select string_agg(replace(replace(entity ->> part.name, chr(92), chr(92) || chr(92)), '/', chr(92) || '/'), '/'
                            order by part.place)
          from unnest(parts) with ordinality part (name, place)) end
$$;

-- The same as an expression, for what cannot be made jsonb.
create or replace function tidemill.entity_key(parts text[]) returns text
language sql immutable
as $$
    select case when cardinality(parts) = 1 then format('%I::text', parts[1])
    else (select string_agg(
              format($e$replace(replace(%I::text, chr(92), chr(92) || chr(92)), '/', chr(92) || '/')$e$, part.name),
              $e$ || '/' || $e$ order by part.place)
          from unnest(parts) with ordinality part (name, place)) end
$$;
