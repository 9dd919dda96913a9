-- Events of one city, from the stream events_in_country. The name of the city has two spellings.
-- sink: topic, table
-- key: device
-- backfill: earliest
-- trigger: 100 milliseconds
SELECT device, message_id, event, country, city, event_time, received_at
FROM events_in_country
WHERE city IN ('Bangalore', 'Bengaluru')
