-- Events of one country. The file meetup.toml next to this one turns meetup events into readings with these tags.
-- sink: topic, table
-- key: device
-- backfill: earliest
-- trigger: 100 milliseconds
SELECT device, message_id, text AS event, tags['country'] AS country, tags['city'] AS city, event_time, received_at
FROM readings
WHERE metric = 'event_name' AND tags['country'] = 'in'
