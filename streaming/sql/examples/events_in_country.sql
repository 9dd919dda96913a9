-- Events of one country. How meetup events become readings with these tags stands in meetup.toml beside this file.
-- sink: topic, table
-- key: device
-- backfill: earliest
-- trigger: 100 milliseconds
SELECT device, message_id, text AS event, tags['country'] AS country, tags['city'] AS city, event_time, received_at
FROM readings
WHERE metric = 'event_name' AND tags['country'] = 'in'
