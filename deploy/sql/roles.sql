-- The role that workers and services use. Run once, as a superuser, in the database of Tidemill:
--   psql -v app_password=… -f deploy/sql/roles.sql
-- Then, as the owner of the schema and with every migration: tidemill migrate --grant tidemill_app
-- It owns nothing and creates nothing; rights on tables of your own are yours to give.
\set ON_ERROR_STOP on
create role tidemill_app login nosuperuser nocreatedb nocreaterole noreplication password :'app_password';
grant connect on database :"DBNAME" to tidemill_app;
grant usage on schema public to tidemill_app;
-- A session that was forgotten inside of a transaction would hold up vacuum, and whoever waits for its locks.
alter role tidemill_app in database :"DBNAME" set idle_in_transaction_session_timeout = '10min';
