-- The queries of deploy/balance.py, each under its name. Sources: `readings` and `dead_letters` are the Delta tables,
-- `records` the records in Kafka, `ranges` the numbers that each gateway epoch counted, `counted` the counts themselves, `lives`
-- the time in which each epoch counted, `landed` Spark's progress.
-- Variables: cutoff_us, near_us, window_messages, readings_topic, dead_letters_topic.

-- name: schema
create table rows_at(topic varchar, partition int, "offset" bigint, epoch bigint, number bigint, row_count bigint, content hugeint);
create table records(topic varchar, partition int, "offset" bigint, at_ms bigint, gateway varchar, epoch bigint, number bigint,
    received_us bigint, device varchar, mqtt_topic varchar, is_partial boolean, is_qos_0 boolean, payload varchar,
    reading_count bigint, content hugeint, said hugeint);
create table wanted(partition int, "offset" bigint, epoch bigint, number bigint, received_us bigint, device varchar,
    metric varchar, "index" int, message_id varchar, value double, text varchar, unit varchar, event_us bigint,
    device_us bigint, is_relative boolean, payload varchar, replayed_topic varchar);
create table ranges(gateway varchar, epoch bigint, low bigint, high bigint);
create table lives(gateway varchar, epoch bigint, first_ms bigint, last_ms bigint, upto bigint);
create table gateways(gateway varchar);
create table openings(gateway varchar, epoch bigint, low bigint, high bigint);
create table counted(gateway varchar, epoch bigint, minute bigint, device varchar, accepted bigint, dead bigint);
create table erased(device_sha256 varchar, at_us bigint);
create table corrections(device_sha256 varchar, metric varchar, from_us bigint, to_us bigint, at_us bigint, is_deletion boolean);
create table landed(topic varchar, partition int, "end" bigint);
-- DuckDB adds the last of several to a hash by XOR, so that an equal change of two rows would cancel out: hence a hash of the hash.
create macro content(device, metric, idx, message_id, value, text, unit, event_us, device_us, received_us) as
    hash(hash(device, metric, idx::int, message_id, value::double, text, unit, event_us::bigint, device_us::bigint,
        received_us::bigint));

-- name: views
-- Earlier days than the cutoff's hold no row of it: `date` is the day of received_at, and the tables are partitioned by it.
-- `near` begins a little earlier, because the original of most copies is there.
create or replace temp view all_readings as select partition, "offset", gateway_epoch as epoch, message_number as number,
    device, metric, "index", message_id, value, text, unit, epoch_us(event_time) as event_us,
    epoch_us(device_time) as device_us, coalesce(list_contains(flags, 'relative_time'), false) as is_relative,
    coalesce(list_contains(flags, 'corrected'), false) as is_corrected, $payload::varchar as payload, $topic::varchar as mqtt_topic,
    -- A row in the partition of another day has no time: a query for its day does not find it.
    if(date = timezone('UTC', received_at)::date, epoch_us(received_at), null) as received_us, received_at, date from readings;
create or replace temp view near_readings as select * from all_readings
    where date >= make_timestamp(getvariable('near_us'))::date
        and received_at >= make_timestamptz(getvariable('near_us'));
create or replace temp view window_readings as select * from all_readings
    where date >= make_timestamp(getvariable('cutoff_us'))::date
        and received_at >= make_timestamptz(getvariable('cutoff_us'));
create or replace temp view window_dead_letters as select * from dead_letters
    where date >= make_timestamp(getvariable('cutoff_us'))::date
        and received_at >= make_timestamptz(getvariable('cutoff_us'));

-- name: rows_at
delete from rows_at;
insert into rows_at select getvariable('readings_topic'), partition, "offset", epoch, number, count(*),
        sum(content(device, metric, "index", message_id, value, text, unit, event_us, device_us, received_us))
    from window_readings group by all order by partition, "offset";
insert into rows_at select source_topic, partition, "offset", gateway_epoch, message_number, count(*), null
    from window_dead_letters where source_topic = getvariable('dead_letters_topic') group by all;

-- name: take_records
create or replace temp table said as select partition, "offset", count(*) as reading_count,
        sum(content(device, metric, "index", message_id, value, text, unit, event_us, device_us, received_us)) as content,
        sum(content(device, metric, "index", message_id, value, text, unit, null, if(is_relative, null, device_us), null)) as said
    from batch_readings group by all;
insert into records select r.*, coalesce(s.reading_count, 0), s.content, s.said
    from batch_records r left join said s using (partition, "offset");
-- Readings of records whose rows are incomplete or differ.
insert into wanted select x.* from batch_readings x
    where (x.partition, x."offset") not in (select (s.partition, s."offset") from said s join rows_at a
        -- The message's name must agree too: a recreated topic uses its offsets again.
        on a.partition = s.partition and a."offset" = s."offset" and a.row_count = s.reading_count and a.content = s.content
        join batch_records r on r.partition = s.partition and r."offset" = s."offset" and a.epoch = r.epoch and a.number = r.number
        where a.topic = getvariable('readings_topic')
            and a."offset" between (select min("offset") from said) and (select max("offset") from said));

-- name: here
create or replace temp table here as
    select w.rowid as id, bool_or(t.is_corrected) as is_corrected, bool_or(t.value is not distinct from w.value
            and t.text is not distinct from w.text and t.unit is not distinct from w.unit
            and t.event_us is not distinct from w.event_us and t.device_us is not distinct from w.device_us
            and t.received_us is not distinct from w.received_us) as is_same
    from wanted w join window_readings t on t.partition = w.partition and t."offset" = w."offset" and t.epoch = w.epoch
        and t.number = w.number and t.device = w.device and t.metric = w.metric and t."index" = w."index"
        and t.message_id is not distinct from w.message_id
    group by w.rowid;

-- name: elsewhere
-- The rows of the same identity, and whether one has the same content. A time that the gateway made of a relative one differs at
-- each delivery, and a corrected row is no longer what was sent. A row that claims to come from this very record is not
-- its original: it is the fault of the record's own row.
-- A retained message is also known by its topic and payload: its live delivery has another identity, or none.
create or replace temp table elsewhere as select id, bool_or(is_same) as is_same from (
    select w.rowid as id, (t.is_corrected or coalesce(t.payload = w.payload, false)
            or (t.value is not distinct from w.value and t.text is not distinct from w.text
                and t.unit is not distinct from w.unit
                and (w.is_relative or t.is_relative or t.device_us is not distinct from w.device_us))) as is_same
    from wanted w join (select device, message_id, metric, "index", value, text, unit, device_us, is_relative, is_corrected,
            payload, partition, "offset", epoch, number, received_at from near_readings
            where message_id in (select message_id from wanted)
        union all by name select * exclude (mqtt_topic) from older) t
        on t.message_id = w.message_id and t.device = w.device and t.metric = w.metric and t."index" = w."index"
            and not coalesce(t.partition = w.partition and t."offset" = w."offset"
                and (epoch_us(t.received_at) = w.received_us or (t.epoch = w.epoch and t.number = w.number)), false)
    union all
    select w.rowid, true from wanted w join (select device, metric, "index", payload, mqtt_topic, partition, "offset" from near_readings
            where payload in (select payload from wanted where replayed_topic is not null)
        union all by name select device, metric, "index", payload, mqtt_topic, partition, "offset" from older) t
        on t.mqtt_topic = w.replayed_topic and t.payload = w.payload and t.device = w.device and t.metric = w.metric
            and t."index" = w."index" and (t.partition, t."offset") <> (w.partition, w."offset")
    ) group by id;

-- name: unresolved_replays
select distinct device, payload from wanted where replayed_topic is not null and payload is not null
    and rowid not in (select id from here where is_same or is_corrected) and rowid not in (select id from elsewhere);

-- name: unresolved
-- Identities whose row was not found nearby. Records that have not landed are not looked for.
select distinct w.device, w.message_id from wanted w
    left join landed l on l.topic = getvariable('readings_topic') and l.partition = w.partition
    where w.message_id is not null and w."offset" < coalesce(l."end", 0)
        and w.rowid not in (select id from here where is_same or is_corrected) and w.rowid not in (select id from elsewhere);

-- name: suspects
-- Identities of the window whose original may be before `near`: readings measured before it, and the first messages of a
-- connection, because the broker sends unacknowledged messages of the last connection again.
select device, message_id, min(if(event_us < getvariable('near_us'), event_us, null)) as event_us from window_readings t
    where message_id is not null and (event_us < getvariable('near_us')
        or exists(select 1 from openings o where o.epoch = t.epoch and t.number between o.low and o.high))
    group by all;

-- name: older
create or replace temp table older(epoch bigint, number bigint, device varchar, message_id varchar, metric varchar, "index" int, value double, text varchar,
    unit varchar, device_us bigint, is_relative boolean, is_corrected boolean, payload varchar,
    received_at timestamptz, partition int, "offset" bigint, mqtt_topic varchar);

-- name: take_older
insert into older select gateway_epoch, message_number, device, message_id, metric, "index", value, text, unit, epoch_us(device_time),
    coalesce(list_contains(flags, 'relative_time'), false), coalesce(list_contains(flags, 'corrected'), false),
    $payload::varchar, received_at, partition, "offset", $topic::varchar
    from fetched semi join pairs using (device, $by);

-- name: states
-- Corrections excuse rows received before that they deleted or changed, and copies of deleted rows.
create or replace temp table pardoned as
    select w.rowid as id, bool_or(c.is_deletion) as is_deleted, bool_or(not c.is_deletion) as is_changed
    from wanted w join corrections c on c.device_sha256 = sha256(w.device) and w.metric = coalesce(c.metric, w.metric)
        and w.event_us >= coalesce(c.from_us, w.event_us) and (c.to_us is null or w.event_us < c.to_us)
        and w.received_us < c.at_us
    group by w.rowid;
create or replace temp table kept as
    select w.partition, w."offset", w.message_id, h.id is not null and (h.is_same or h.is_corrected or coalesce(p.is_changed, false)) as is_here,
        h.id is not null and not (h.is_same or h.is_corrected or coalesce(p.is_changed, false))
            and not coalesce(bool_or(h.is_same) over same_key, false) as is_altered,
        coalesce(e.is_same, false) as is_copy, h.id is not null or e.id is not null as is_known,
        coalesce(p.is_deleted, false) or (w.message_id is not null
            and coalesce(bool_or(p.is_deleted) over same_identity, false)) as is_deleted
    from wanted w left join here h on h.id = w.rowid left join elsewhere e on e.id = w.rowid
        left join pardoned p on p.id = w.rowid
    window same_key as (partition by w.partition, w."offset", w.metric, w."index", w.message_id),
        same_identity as (partition by w.device, w.message_id, w.metric, w."index");
create or replace temp table missing as
    select partition, "offset", bool_or(is_here or is_deleted) as has_row, bool_or(is_altered) as is_altered,
        bool_and(is_here or is_deleted or is_copy) as all_kept,
        bool_and(is_here or is_deleted or is_copy or is_known) as all_known,
        bool_and(is_here or is_deleted or is_copy or is_known or message_id is not null) as all_named
    from kept group by all;
-- Rows under the name of a message that has no such reading.
create or replace temp table invented as
    select distinct t.partition, t."offset" from window_readings t
    semi join (select distinct partition, "offset", epoch, number from wanted) r
        on r.partition = t.partition and r."offset" = t."offset" and r.epoch = t.epoch and r.number = t.number
    anti join wanted w on w.partition = t.partition and w."offset" = t."offset" and w.device = t.device and w.metric = t.metric
        and w."index" = t."index" and w.message_id is not distinct from t.message_id;
-- Records that Spark itself rejected. One that it can't read is rejected as a whole, and its name stays unknown; one with a
-- name has readings whose identity is stored with other content, or with content that could not be compared.
create or replace temp table refused as
    select source_topic as topic, partition, "offset", gateway_epoch as epoch, message_number as number,
        bool_or(reason = 'unchecked_duplicate') as is_unchecked
    from dead_letters
    where stage = 'stream' and date >= make_timestamp(getvariable('cutoff_us'))::date
    group by all;
create or replace temp table states as
    select r.*, f.topic is not null as is_refused, case
        when r.topic = getvariable('dead_letters_topic')
            then case when coalesce(a.topic, f.topic) is null then 'lost' when r.is_partial then 'part' else 'dead' end
        -- A row that was intact when its record was read may have been changed since.
        when m.partition is null then 'stored'
        when m.is_altered or i.partition is not null then 'altered'
        when m.all_kept or (f.epoch is not null and (m.all_known or (f.is_unchecked and m.all_named)))
            then case when m.has_row then 'stored' when f.topic is not null then 'dead' else 'duplicate' end
        when f.topic is not null and f.epoch is null and not m.has_row then 'dead'
        else 'lost' end as state
    from records r
    left join rows_at a on r.topic = getvariable('dead_letters_topic') and a.topic = r.topic
        and a.partition = r.partition and a."offset" = r."offset" and a.epoch = r.epoch and a.number = r.number
    left join missing m on r.topic = getvariable('readings_topic')
        and m.partition = r.partition and m."offset" = r."offset"
    left join invented i on r.topic = getvariable('readings_topic') and i.partition = r.partition and i."offset" = r."offset"
    left join refused f on f.topic = r.topic and f.partition = r.partition and f."offset" = r."offset"
        and (f.epoch is null or (f.epoch = r.epoch and f.number = r.number));
-- Rows erased by request had been stored, and are missing on purpose.
update states set state = 'stored' where state = 'lost'
    and exists(select 1 from erased e where e.device_sha256 = sha256(device) and received_us < e.at_us);

-- name: messages
-- One class per message. Partial dead letters alone are not a message: its record was not delivered, so it was not acked.
create or replace temp table messages as
    with named as (
        select s.gateway, s.epoch, s.number, min(s.received_us) as received_us, min(s.device) as device,
            -- Rejected in part: by the gateway, or by Spark, which rejects one device's record of a message of several.
            bool_or(s.state = 'part') or (bool_or(s.state = 'stored') and bool_or(s.state = 'dead'))
                or bool_or(s.state = 'stored' and s.is_refused) as has_part,
            bool_or(s.state = 'lost' and s."offset" >= coalesce(l."end", 0)) as is_pending,
            max(s.at_ms) as at_ms, bool_or(s.is_qos_0) as is_qos_0,
            bool_or(s.topic = getvariable('readings_topic')) as has_reading,
            bool_or(s.topic = getvariable('dead_letters_topic') and not s.is_partial) as has_letter,
            list_sort(list(distinct s.device) filter (s.topic = getvariable('readings_topic'))) as devices,
            count(distinct (s.received_us, s.mqtt_topic)) > 1
                or count(*) filter (s.topic = getvariable('dead_letters_topic') and not s.is_partial) > 1 as is_twice,
            arg_max(s.topic || '[' || s.partition || ']@' || s."offset", (s.state in ('lost', 'altered'))::int) as origin,
            case when bool_or(s.state = 'lost') then 'lost'
                when bool_or(s.state = 'altered') then 'altered'
                when bool_or(s.state = 'stored') then 'stored'
                when bool_or(s.state = 'dead') then 'dead_lettered'
                else 'duplicate' end as class
        from states s left join landed l using (topic, partition)
        group by s.gateway, s.epoch, s.number having bool_or(not s.is_partial)
    )
    select n.*, case when n.number <= g.high then 'counted'
        when n.number > coalesce(v.upto, -1) then 'tail'
        when n.number > coalesce((select max(high) from ranges r where r.gateway = n.gateway and r.epoch = n.epoch), -1)
            then 'late'
        else 'hole' end as place
    from named n asof left join ranges g on n.gateway = g.gateway and n.epoch = g.epoch and n.number >= g.low
        left join lives v on v.gateway = n.gateway and v.epoch = n.epoch;

-- name: uncounted
-- Messages without an outcome are the last ones of a gateway, at most a window of them and before its next connection; else
-- another program wrote them, or their outcome is lost. Those that the broker sent again later are a gateway's for certain.
create or replace temp table copied as
    select r.gateway, r.epoch, r.number from records r semi join (select * from messages where place = 'tail') t
            on t.gateway = r.gateway and t.epoch = r.epoch and t.number = r.number
        semi join (select c.gateway, c.epoch, c.device, c.said, c.payload from records c
            semi join (select * from messages where place = 'counted') m
                on m.gateway = c.gateway and m.epoch = c.epoch and m.number = c.number) o
            on o.gateway = r.gateway and o.epoch <> r.epoch and o.device is not distinct from r.device
                and (o.said = r.said or o.payload = r.payload);
create or replace temp table uncounted as
    with begun as (select gateway, epoch, min(number) - 1 as low, min(at_ms) as first_ms, bool_or(is_qos_0) as is_qos_0
        from messages where place = 'tail' group by all)
    select m.gateway, m.epoch, m.number from messages m join begun b using (gateway, epoch) left join lives v using (gateway, epoch)
        where m.place = 'tail' and (m.gateway not in (select gateway from lives union all select gateway from gateways)
            or m.number - coalesce(v.upto, b.low) > getvariable('window_messages') * if(b.is_qos_0, 3, 1)
            or (exists(select 1 from lives y where y.gateway = m.gateway and y.epoch <> m.epoch
                    and y.first_ms < m.at_ms
                    and (y.epoch > m.epoch or y.last_ms > least(b.first_ms, coalesce(v.first_ms, b.first_ms))))
                and (m.gateway, m.epoch, m.number) not in (select (gateway, epoch, number) from copied)));
update messages set is_pending = false, class = case when is_twice then 'twice' when place = 'hole' then 'hole' else 'uncounted' end
    where is_twice or place = 'hole' or (gateway, epoch, number) in (select (gateway, epoch, number) from uncounted);

-- name: differing
-- Per gateway epoch: by how many messages the counts differ from the records, minute by minute and device by device. A
-- message of several devices is counted for one of them, and one that Kafka rejected in part may count as rejected.
with found as (select *, received_us // 60000000 as minute, has_letter or len(devices) > 1 as is_vague
        from messages where place = 'counted'),
    minutes as (select gateway, epoch, minute, count(*) as messages,
            count(*) filter (has_reading and not has_letter) as least, count(*) filter (has_reading) as most
        from found group by all),
    devices as (select gateway, epoch, minute, u.device, count(*) filter (not is_vague) as least, count(*) as most
        from found, unnest(devices) as u(device) where has_reading group by all),
    sums as (select gateway, epoch, minute, device, sum(accepted) as accepted, sum(dead) as dead from counted group by all),
    all_devices as (select gateway, epoch, minute, sum(accepted) as accepted, sum(dead) as dead from sums group by all),
    by_device as (select gateway, epoch, minute, sum(greatest(coalesce(s.accepted, 0) - coalesce(d.most, 0), 0)) as over,
            sum(greatest(coalesce(d.least, 0) - coalesce(s.accepted, 0), 0)) as under
        from (select * from sums where device is not null) s full join devices d using (gateway, epoch, minute, device)
        group by all),
    by_minute as (select gateway, epoch, minute, coalesce(c.accepted + c.dead, 0) - coalesce(m.messages, 0) as difference,
            greatest(coalesce(m.least, 0) - coalesce(c.accepted, 0), coalesce(c.accepted, 0) - coalesce(m.most, 0), 0) as class
        from all_devices c full join minutes m using (gateway, epoch, minute))
select gateway, epoch, minute, difference::bigint as difference,
        greatest(abs(difference), class, coalesce(over, 0), coalesce(under, 0))::bigint as messages
    from by_minute left join by_device using (gateway, epoch, minute)
    where greatest(abs(difference), class, coalesce(over, 0), coalesce(under, 0)) > 0
    order by gateway, epoch, minute;

-- name: doubled
-- Rows too many: of one identity, or of one reading of one record where it has none, or of one dead letter.
create or replace temp table doubled as
    select message_id, device, metric, "index", count(*) - 1 as extra, min(partition) as partition,
        min("offset") as first_offset, max("offset") as last_offset
    from (select message_id, device, metric, "index", partition, "offset", received_at from near_readings
            where message_id is not null
        union all by name select message_id, device, metric, "index", partition, "offset", received_at from older)
    group by message_id, device, metric, "index"
    having count(*) > 1 and max(received_at) >= make_timestamptz(getvariable('cutoff_us'))
union all
    select null, device, metric, "index", count(*) - 1, partition, "offset", "offset"
    from window_readings where message_id is null
    group by device, metric, "index", partition, "offset", epoch, number having count(*) > 1
union all
    select null, null, null, null, row_count - 1, partition, "offset", "offset"
    from rows_at where topic = getvariable('dead_letters_topic') and row_count > 1;

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

-- name: show_messages
select gateway, epoch, number, device, received_us, origin, is_pending as pending
    from messages where class = ? order by received_us, number limit 10;

-- name: show_duplicate_rows
select * from doubled order by partition, first_offset limit 10;

-- name: show_order_violations
select * from swapped order by partition, "offset" limit 10;
