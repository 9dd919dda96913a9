-- The queries of deploy/balance.py, each under its name. Sources: `readings` and `dead_letters` are the Delta tables,
-- `records` what Kafka holds, `upto` the last number that each gateway epoch counted, `landed` how far Spark has come.
-- Variables: cutoff_us, readings_topic, dead_letters_topic.

-- name: schema
create table rows_at(topic varchar, partition int, "offset" bigint, epoch bigint, number bigint, row_count bigint);
create table records(topic varchar, partition int, "offset" bigint, gateway varchar, epoch bigint, number bigint,
    received_us bigint, device varchar, is_partial boolean, reading_count bigint);
create table wanted(partition int, "offset" bigint, epoch bigint, number bigint, device varchar, metric varchar,
    "index" int, message_id varchar);
create table upto(gateway varchar, epoch bigint, upto bigint);
create table erased(device_sha256 varchar, at_us bigint);
create table landed(topic varchar, partition int, "end" bigint);

-- name: views
-- Days before the cutoff's hold no row of it: `date` is the day of received_at, and the tables are partitioned by it.
create or replace temp view window_readings as select * from readings
    where date >= make_timestamp(getvariable('cutoff_us'))::date
        and received_at >= make_timestamptz(getvariable('cutoff_us'));
create or replace temp view window_dead_letters as select * from dead_letters
    where date >= make_timestamp(getvariable('cutoff_us'))::date
        and received_at >= make_timestamptz(getvariable('cutoff_us'));

-- name: rows_at
delete from rows_at;
insert into rows_at select getvariable('readings_topic'), partition, "offset", gateway_epoch, message_number, count(*)
    from window_readings group by all;
insert into rows_at select source_topic, partition, "offset", gateway_epoch, message_number, count(*)
    from window_dead_letters where source_topic = getvariable('dead_letters_topic') group by all;

-- name: complete
select r.partition, r."offset" from records r join rows_at a
    -- The message's name must agree too: a topic made anew uses its offsets again.
    on a.topic = r.topic and a.partition = r.partition and a."offset" = r."offset" and a.epoch = r.epoch
        and a.number = r.number and a.row_count >= r.reading_count
    where r.topic = getvariable('readings_topic') and r."offset" between ? and ?;

-- name: states
-- Of each reading of a record with too few rows: is it here, or is its identity stored from another record?
create or replace temp table kept as
    select w.*, exists(select 1 from readings t where t.message_id = w.message_id and t.device = w.device
            and t.metric = w.metric and t."index" = w."index") as elsewhere,
        exists(select 1 from window_readings t where t.partition = w.partition and t."offset" = w."offset"
            and t.gateway_epoch = w.epoch and t.message_number = w.number and t.metric = w.metric
            and t."index" = w."index" and t.message_id is not distinct from w.message_id) as here
    from wanted w;
create or replace temp table missing as
    select partition, "offset", bool_and(here or elsewhere) as all_kept from kept group by all;
-- Records that Spark itself refused. One that it can't read is refused whole, and its name stays unknown; one with a name
-- has readings whose identity is stored with other content (`conflicting_duplicate`): its other readings must be kept. One
-- that was not compared (`unchecked_duplicate`) may have had its row deleted.
create or replace temp table refused as
    select source_topic as topic, partition, "offset", gateway_epoch as epoch, message_number as number,
        bool_or(reason = 'unchecked_duplicate') as is_unchecked
    from dead_letters
    where stage = 'stream' and date >= make_timestamp(getvariable('cutoff_us'))::date group by all;
create or replace temp table states as
    select r.*, f.topic is not null as is_refused, case
        when r.topic = getvariable('dead_letters_topic')
            then case when coalesce(a.topic, f.topic) is null then 'lost' when r.is_partial then 'part' else 'dead' end
        when a.row_count >= r.reading_count or (a.row_count > 0 and m.all_kept) then 'stored'
        when f.topic is not null and (f.epoch is null or m.all_kept or f.is_unchecked) then 'dead'
        when m.all_kept then 'duplicate'
        else 'lost' end as state
    from records r
    left join rows_at a on a.topic = r.topic and a.partition = r.partition and a."offset" = r."offset"
        and a.epoch = r.epoch and a.number = r.number
    left join missing m on r.topic = getvariable('readings_topic')
        and m.partition = r.partition and m."offset" = r."offset"
    left join refused f on f.topic = r.topic and f.partition = r.partition and f."offset" = r."offset"
        and (f.epoch is null or (f.epoch = r.epoch and f.number = r.number));

-- name: pardon
-- What was erased by request had been stored, and is missing on purpose.
update states set state = 'stored' where state = 'lost'
    and exists(select 1 from erased e where e.device_sha256 = sha256(device) and received_us < e.at_us);

-- name: messages
-- One class per message. Partial dead letters alone are no message: its record was not delivered, so it was not acked.
create or replace temp table messages as
    select s.gateway, s.epoch, s.number, min(s.received_us) as received_us, min(s.device) as device,
        -- Refused in part: by the gateway, or by Spark, which refuses one device's record of a message of several.
        bool_or(s.state = 'part') or (bool_or(s.state = 'stored') and bool_or(s.state = 'dead'))
            or bool_or(s.state = 'stored' and s.is_refused) as has_part,
        bool_or(s.state = 'lost' and s."offset" >= coalesce(l."end", 0)) as is_pending,
        s.number <= coalesce(any_value(u.upto), -1) as is_counted,
        arg_max(s.topic || '[' || s.partition || ']@' || s."offset", (s.state = 'lost')::int) as origin,
        case when bool_or(s.state = 'lost') then 'unaccounted'
            when bool_or(s.state = 'stored') then 'stored'
            when bool_or(s.state = 'dead') then 'dead_lettered'
            else 'duplicate' end as class
    from states s left join upto u using (gateway, epoch) left join landed l using (topic, partition)
    group by s.gateway, s.epoch, s.number having bool_or(not s.is_partial);

-- name: doubled
-- Rows too many: of one identity in the whole table, or of one reading of one record where it has none.
create or replace temp table doubled as
    select message_id, device, metric, "index", count(*) - 1 as extra, min(partition) as partition,
        min("offset") as first_offset, max("offset") as last_offset
    from readings where message_id in (select message_id from window_readings)
    group by message_id, device, metric, "index" having count(*) > 1
union all
    select null, device, metric, "index", count(*) - 1, partition, "offset", "offset"
    from window_readings where message_id is null
    group by device, metric, "index", partition, "offset", gateway_epoch, message_number having count(*) > 1;

-- name: swapped
-- Within an epoch numbers ascend, and an epoch that another one followed never comes back. Which epoch is the later one
-- is not asked: epochs are wall-clock times, and a clock may be set back between two processes.
create or replace temp table swapped as
    select device, partition, "offset", gateway, epoch, number,
        lag(epoch) over each as epoch_before, lag(number) over each as number_before
    from records where topic = getvariable('readings_topic')
    window each as (partition by partition, device, gateway order by "offset"),
        of_epoch as (partition by partition, device, gateway, epoch order by "offset")
    qualify lag(number) over of_epoch >= number
        or (lag(number) over of_epoch is not null and epoch_before <> epoch);

-- name: show_unaccounted
select gateway, epoch, number, device, received_us, origin, is_pending as pending
    from messages where class = 'unaccounted' order by received_us, number limit 10;

-- name: show_duplicate_rows
select * from doubled order by partition, first_offset limit 10;

-- name: show_order_violations
select * from swapped order by partition, "offset" limit 10;
