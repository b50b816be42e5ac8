-- As little as one row can be deleted, all of them can.
create function tidemill.ctl_not_emptied() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception 'the control table cannot be emptied: no task that rests on it would hear of it'
        using errcode = 'restrict_violation', hint = 'Let its rows stay; what nobody names costs nothing.';
end
$$;

create trigger ctl_truncating before truncate on tidemill.ctl
for each statement execute function tidemill.ctl_not_emptied();

revoke all on function tidemill.ctl_not_emptied from public;
