"""Words in fields of many formats that say what the fields hold. Data only; keys are compared without case and separators."""

import re
from typing import Final

from gateway.decoders.time_names import USUAL_NAMES

__all__ = [
    "COLLECTIONS",
    "CONSTANT",
    "COUNTERS",
    "DEVICE",
    "ENCODED",
    "ENVELOPES",
    "EVENTS",
    "IDENTITY",
    "KINDS",
    "NAME",
    "NAME_WORDS",
    "NO_SENDER",
    "NUMBER_WORDS",
    "OFFSETS",
    "OF_MESSAGES",
    "QUALITY",
    "QUANTITIES",
    "RADIO",
    "SIDE",
    "SINGLE",
    "SURE_NAME_WORDS",
    "THINGS",
    "TIME",
    "TIME_WORDS",
    "UNIT",
    "normalize_key",
]

_SIGNS = re.compile(r"[^0-9a-z]")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def normalize_key(key: str) -> str:
    """Return a key without case and separators: all spellings of `iothub-connection-device-id` or `SourceTimestamp` are equal."""
    return _SIGNS.sub("", key.lower())


_OF_SOURCE: Final = _words(
    "sourcetimestamp sourcetime measuredat measurementtime measuredtime sampletime sampledat samplets observedat timeinstant "
    "dateobserved resulttime phenomenontime devicetime devicetimestamp utctime utc gpstime datetime datetimeutc isotime "
    "timestamputc ts timestamp time date t tst epoch unixtime unixtimestamp tsms timems timestampms timestampns at when tm "
    "clock readat readingtime localtime eventtime"
)
_OF_LATER_HOPS: Final = _words(
    "lastupdated lastupdate lastchanged lastseen updatedat modifiedat created createdat createdepoch generatedat sent sentat "
    "publishedat rxtime receivedat received enqueuedtime iothubenqueuedtime servertimestamp servertime lc "
    "updatetime effectivedatetime"
)
TIME: Final = tuple(dict.fromkeys((*_OF_SOURCE, *USUAL_NAMES, *_OF_LATER_HOPS)))
"""Names of times, the nearest to the measurement first; includes all names that are read as times without a setting."""

TIME_WORDS: Final = _set(
    "time date ts timestamp timestamps at utc epoch datetime unixtime since until seen updated clock min minutes"
)
"""Words of keys under which a number in the window of epochs is a time."""
EVENTS: Final = _set(
    "from boot booted reboot start started starting stop stopped begin begins end ends setup install installed installation "
    "calibrated calibration calib next first birth born reset restart restarted expire expires expiry expiration due valid until "
    "since sunrise sunset rise set storm min max minimum maximum peak lowest highest scheduled schedule alarm "
    "service maintenance manufactured production built build connected disconnected armed purchase purchased warranty changed "
    "previous prev last store stored"
)
"""Words of keys that say that something else happened at a time: it is not that of the measurement."""

OFFSETS: Final = _set("time offset offsets timeoffset timeoffsets offsetms dt delta elapsed relativetime")
"""Keys of numbers that are distances from the time of the message, unless they are times themselves."""

DEVICE: Final = _words(
    "deviceid deviceuid deviceuuid deveui deviceeui enddeviceid iothubconnectiondeviceid coreid imei thingid thingname "
    "deviceserial deviceserialnumber serialnumber serialno serial dsn sn ieee ieeeaddress deviceieee uniqueid eui64 eui "
    "macaddress macaddr mac devicemac devid did sensorid nodeid meterid stationid stationcode assetid unitid inverterid "
    "chargerid trackerid vehicleid vin loggerid loggersn invertersn datalogger chipid hwid hardwareid equipmentid "
    "machineid plantunit sourceid device dev devicename node sensor station tracker meter inverter machine asset thing "
    "subjectreference patientid patient targetname "
    "applicationuri endpointurl hostname host clientid from sender entityid context name friendlyname id"
)
"""Keys of devices, the most certain first."""

IDENTITY: Final = _set(
    "messageid msgid msguuid eventid uuid guid packetid deduplicationid correlationid transactionid telegramid recordid "
    "seq seqnumber sequence sequencenumber seqno seqnr fcnt fcntup framecounter counterup msgcounter packetcounter msgcount "
    "messagecounter messagenumber msgnr frameid txid id"
)
COUNTERS: Final = _set(
    "seq seqnumber sequence sequencenumber seqno seqnr fcnt fcntup framecounter counterup msgcounter packetcounter msgcount "
    "messagecounter messagenumber msgnr"
)
OF_MESSAGES: Final = _set(
    "messageid msgid msguuid eventid packetid deduplicationid correlationid transactionid telegramid recordid frameid"
)
"""Keys of ids that certainly belong to a message; an `id` or `uuid` may be that of the sender."""
RADIO: Final = _set(
    "rssi wifirssi signalrssi rxrssi snr rxsnr lqi linkquality lrrrssi lrrsnr rssidbm snrdb avgsnr antenna freq frequencymhz "
    "datarate spreadingfactor sf codingrate hopstart hoplimit hopsaway rfchain rfchannel channelrssi lsnr esp lrrid "
    "receiver gatewayid gweui duplicate mod modulation"
)
QUALITY: Final = _set("q qc qual quality qualitycode statuscode status statuscodesymbol good valid isvalid")
UNIT: Final = _set("unit units uom unitofmeasurement unitofmeasure unitcode engineeringunits eu")
NAME: Final = _words(
    "propertyname metricname metric measurement measure tagname tag variablename variable parametername parameter displayname "
    "signalname signal channelname pointname point quantity attribute datapoint datapointname label sensorname sensortype key "
    "measurand name n property sensor flag externalid type browsename itemname item nodeid code channel path id"
)
"""Keys whose text names the value next to it, the most certain first."""
NAME_WORDS: Final = _words(
    "name shortname longname tag signal parameter param variable metric measurand point datapoint comp component quantity "
    "property attribute register channel ch sensor label key code path item service node symbol object kind type id"
)
"""Words of keys whose text may name what is next to it, if it differs; the most certain first."""
SURE_NAME_WORDS: Final = _set("tag signal parameter param variable metric measurand datapoint")
"""Words of keys that count as names without another message."""
NO_SENDER: Final = _set(
    "message msg request event transaction correlation session trace client tenant group org organization organisation customer "
    "user account app application model type frame packet alarm job batch record command cmd reading measurement firmware config "
    "profile product schema channel port instance object secret access key token writer dataset publisher item tag data status "
    "error"
)
"""Words of ids that do not belong to the sender."""
NUMBER_WORDS: Final = _words(
    "id lsid channel address addr register port slot num number no nr index idx unit zone cell phase string circuit "
    "probe tank pump pack"
)
"""Words of keys whose number distinguishes the items of a list."""
SINGLE: Final = _set(
    "value val v measuredvalue presentvalue currentvalue rawvalue reading result data payload measurement"
)
"""Keys of the one value of a message."""

ENCODED: Final = _set("data payload frmpayload payloadraw raw rawdata bytes hex rawhex payloadhex base64 buffer frame")
"""Keys of bytes as text."""

CONSTANT: Final = _set(
    "model modelid type devicetype sensortype messagetype msgtype eventtype event version ver fw fwver fwversion firmware "
    "firmwareversion firmwarerevision msg "
    "sw swver swversion software softwareversion hw hwver hwversion hardware hardwareversion protocol "
    "protocolversion schema schemaversion dataversion metadataversion contentspec contenttype datacontenttype specversion "
    "format encoding manufacturer vendor brand product productid productname producer name devicename friendlyname alias label "
    "description desc title comment note group zone tenant namespace realm app appid application applicationid applicationname "
    "ip ipaddress ipaddr ssid bssid mac macaddress wifi host hostname url uri endpointurl topic mqtttopic path subject source "
    "src sender from to origin user owner location room site area building floor place port fport endpoint endpointid "
    "commandclass commandclassname property propertyname propertykey readable writeable writable stateless ack acknowledged "
    "retain retained dup qos confirmed scale newvalue prevvalue ttl interval heapfree channel usunits lang "
    "language locale timezone tz tzoffset groupid publisherid datasetwriterid writerid writergroup messagetypeid class e r op "
    "transport revision action method cmd command supplier operator bootcount pr priority evt eventcode codec cluster "
    "clusterid metadata"
)
"""Fields that describe the sender or the message, not a measurement."""

SIDE: Final = _set(
    "metadata meta headers header deviceinfo systemproperties context rxmetadata rxinfo txinfo gateways "
    "gateway ccspecific head errors metas diagnostics hotspots"
)
"""Objects that describe the message or its transport, whatever they hold."""

ENVELOPES: Final = _set(
    "values value data payload readings state reported body object telemetry measurements metrics fields params content "
    "message properties attributes d decoded decodedpayload uplinkmessage current msg vals sensors features measurement"
)
"""Objects that only contain the values: they add nothing to a metric's name."""

KINDS: Final = _set(
    "data json state status telemetry sensor readings reading up uplink event events message messages msg values value loop "
    "attrs attributes update updates get info out output measurement measurements measures report reported tele stat notify "
    "pub publish rx d2c live feeds properties metrics main default twin all payload raw decoded stats result results rpc "
    "d r v1 v2 v3 current tx rx tags channels in"
)
"""Topic levels that name a kind of message."""

QUANTITIES: Final = _set(
    "temperature temp humidity hum pressure power energy voltage current co2 voc pm25 pm10 lux illuminance light battery rain "
    "wind noise level flow speed weight distance consumption production frequency dewpoint uv radiation radon"
)
"""Topic levels that name a quantity."""

COLLECTIONS: Final = _set(
    "devices device things thing nodes node sensors inverters inverter meters loadpoints loadpoint stations machines machine "
    "assets trackers units vehicles chargers plcs gateways dev equipment boards modules clients"
)
"""Topic levels after which the name of one of many follows."""

THINGS: Final = COLLECTIONS - _set("sensors loadpoints loadpoint modules boards")
"""Arrays of devices; those left out here are parts of one."""
