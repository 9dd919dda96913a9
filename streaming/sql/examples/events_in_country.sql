-- Events of one country. The mapping in meetup.toml, next to this file, makes readings with these tags from meetup events.
-- sink: topic, table
-- key: device
-- backfill: earliest
-- trigger: 100 milliseconds
SELECT device, message_id, text AS event, tags['country'] AS country, tags['city'] AS city, event_time, received_at
FROM readings
WHERE metric = 'event_name' AND tags['country'] = 'in'
