from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Survey(_message.Message):
    __slots__ = ("name", "title", "period", "levels", "attributes", "budget", "default_level", "levels_differ_at_most", "views", "panels", "properties", "page", "sealing", "two_servers", "attestation")
    class LevelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_LEVEL_FIELD_NUMBER: _ClassVar[int]
    LEVELS_DIFFER_AT_MOST_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    PANELS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    SEALING_FIELD_NUMBER: _ClassVar[int]
    TWO_SERVERS_FIELD_NUMBER: _ClassVar[int]
    ATTESTATION_FIELD_NUMBER: _ClassVar[int]
    name: str
    title: str
    period: str
    levels: _containers.ScalarMap[str, float]
    attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    budget: str
    default_level: str
    levels_differ_at_most: float
    views: _containers.RepeatedCompositeFieldContainer[View]
    panels: int
    properties: _containers.RepeatedCompositeFieldContainer[Property]
    page: Page
    sealing: Sealing
    two_servers: TwoServers
    attestation: RequiredEvidence
    def __init__(self, name: _Optional[str] = ..., title: _Optional[str] = ..., period: _Optional[str] = ..., levels: _Optional[_Mapping[str, float]] = ..., attributes: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ..., budget: _Optional[str] = ..., default_level: _Optional[str] = ..., levels_differ_at_most: _Optional[float] = ..., views: _Optional[_Iterable[_Union[View, _Mapping]]] = ..., panels: _Optional[int] = ..., properties: _Optional[_Iterable[_Union[Property, _Mapping]]] = ..., page: _Optional[_Union[Page, _Mapping]] = ..., sealing: _Optional[_Union[Sealing, _Mapping]] = ..., two_servers: _Optional[_Union[TwoServers, _Mapping]] = ..., attestation: _Optional[_Union[RequiredEvidence, _Mapping]] = ...) -> None: ...

class RequiredEvidence(_message.Message):
    __slots__ = ("tdx", "sgx", "nitro", "test", "statuses", "max_age")
    TDX_FIELD_NUMBER: _ClassVar[int]
    SGX_FIELD_NUMBER: _ClassVar[int]
    NITRO_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_FIELD_NUMBER: _ClassVar[int]
    tdx: _containers.RepeatedScalarFieldContainer[str]
    sgx: _containers.RepeatedScalarFieldContainer[str]
    nitro: _containers.RepeatedScalarFieldContainer[str]
    test: _containers.RepeatedScalarFieldContainer[str]
    statuses: _containers.RepeatedScalarFieldContainer[str]
    max_age: int
    def __init__(self, tdx: _Optional[_Iterable[str]] = ..., sgx: _Optional[_Iterable[str]] = ..., nitro: _Optional[_Iterable[str]] = ..., test: _Optional[_Iterable[str]] = ..., statuses: _Optional[_Iterable[str]] = ..., max_age: _Optional[int] = ...) -> None: ...

class TwoServers(_message.Message):
    __slots__ = ("least", "colluding", "delta", "scale", "bits", "variance", "leader_key", "helper_key", "helper")
    LEAST_FIELD_NUMBER: _ClassVar[int]
    COLLUDING_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_FIELD_NUMBER: _ClassVar[int]
    LEADER_KEY_FIELD_NUMBER: _ClassVar[int]
    HELPER_KEY_FIELD_NUMBER: _ClassVar[int]
    HELPER_FIELD_NUMBER: _ClassVar[int]
    least: int
    colluding: int
    delta: float
    scale: int
    bits: int
    variance: int
    leader_key: bytes
    helper_key: bytes
    helper: str
    def __init__(self, least: _Optional[int] = ..., colluding: _Optional[int] = ..., delta: _Optional[float] = ..., scale: _Optional[int] = ..., bits: _Optional[int] = ..., variance: _Optional[int] = ..., leader_key: _Optional[bytes] = ..., helper_key: _Optional[bytes] = ..., helper: _Optional[str] = ...) -> None: ...

class Sealing(_message.Message):
    __slots__ = ("least", "size", "keys", "rotate_days", "key_count")
    LEAST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ROTATE_DAYS_FIELD_NUMBER: _ClassVar[int]
    KEY_COUNT_FIELD_NUMBER: _ClassVar[int]
    least: int
    size: int
    keys: _containers.RepeatedCompositeFieldContainer[SealingKey]
    rotate_days: int
    key_count: int
    def __init__(self, least: _Optional[int] = ..., size: _Optional[int] = ..., keys: _Optional[_Iterable[_Union[SealingKey, _Mapping]]] = ..., rotate_days: _Optional[int] = ..., key_count: _Optional[int] = ...) -> None: ...

class SealingKey(_message.Message):
    __slots__ = ("public", "since")
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    public: bytes
    since: int
    def __init__(self, public: _Optional[bytes] = ..., since: _Optional[int] = ...) -> None: ...

class Page(_message.Message):
    __slots__ = ("public", "results", "answers")
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    public: bool
    results: bool
    answers: bool
    def __init__(self, public: bool = ..., results: bool = ..., answers: bool = ...) -> None: ...

class Property(_message.Message):
    __slots__ = ("name", "title", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    title: str
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., title: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("attributes",)
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    attributes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, attributes: _Optional[_Iterable[str]] = ...) -> None: ...

class Attribute(_message.Message):
    __slots__ = ("name", "title", "weight", "cap", "categorical", "numeric", "set", "ratings", "strings", "mechanism", "memo")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CAP_FIELD_NUMBER: _ClassVar[int]
    CATEGORICAL_FIELD_NUMBER: _ClassVar[int]
    NUMERIC_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    RATINGS_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    MEMO_FIELD_NUMBER: _ClassVar[int]
    name: str
    title: str
    weight: float
    cap: float
    categorical: Categorical
    numeric: Numeric
    set: Set
    ratings: Ratings
    strings: Strings
    mechanism: str
    memo: float
    def __init__(self, name: _Optional[str] = ..., title: _Optional[str] = ..., weight: _Optional[float] = ..., cap: _Optional[float] = ..., categorical: _Optional[_Union[Categorical, _Mapping]] = ..., numeric: _Optional[_Union[Numeric, _Mapping]] = ..., set: _Optional[_Union[Set, _Mapping]] = ..., ratings: _Optional[_Union[Ratings, _Mapping]] = ..., strings: _Optional[_Union[Strings, _Mapping]] = ..., mechanism: _Optional[str] = ..., memo: _Optional[float] = ...) -> None: ...

class Categorical(_message.Message):
    __slots__ = ("values", "sensitive", "classes", "maps")
    class ClassesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Class
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Class, _Mapping]] = ...) -> None: ...
    class MapsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Map
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Map, _Mapping]] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SENSITIVE_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    MAPS_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    sensitive: _containers.RepeatedScalarFieldContainer[str]
    classes: _containers.MessageMap[str, Class]
    maps: _containers.MessageMap[str, Map]
    def __init__(self, values: _Optional[_Iterable[str]] = ..., sensitive: _Optional[_Iterable[str]] = ..., classes: _Optional[_Mapping[str, Class]] = ..., maps: _Optional[_Mapping[str, Map]] = ...) -> None: ...

class Map(_message.Message):
    __slots__ = ("sensitive",)
    SENSITIVE_FIELD_NUMBER: _ClassVar[int]
    sensitive: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sensitive: _Optional[_Iterable[str]] = ...) -> None: ...

class Class(_message.Message):
    __slots__ = ("values", "scale")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    scale: float
    def __init__(self, values: _Optional[_Iterable[str]] = ..., scale: _Optional[float] = ...) -> None: ...

class Numeric(_message.Message):
    __slots__ = ("low", "high", "clamp", "step", "bins", "sensitive", "resolution", "cap", "edges")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    CLAMP_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BINS_FIELD_NUMBER: _ClassVar[int]
    SENSITIVE_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    CAP_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    low: float
    high: float
    clamp: bool
    step: float
    bins: int
    sensitive: _containers.RepeatedCompositeFieldContainer[Region]
    resolution: _containers.RepeatedCompositeFieldContainer[Resolution]
    cap: float
    edges: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, low: _Optional[float] = ..., high: _Optional[float] = ..., clamp: bool = ..., step: _Optional[float] = ..., bins: _Optional[int] = ..., sensitive: _Optional[_Iterable[_Union[Region, _Mapping]]] = ..., resolution: _Optional[_Iterable[_Union[Resolution, _Mapping]]] = ..., cap: _Optional[float] = ..., edges: _Optional[_Iterable[float]] = ...) -> None: ...

class Region(_message.Message):
    __slots__ = ("low", "high")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    low: float
    high: float
    def __init__(self, low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class Resolution(_message.Message):
    __slots__ = ("upto", "within")
    UPTO_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    upto: float
    within: float
    def __init__(self, upto: _Optional[float] = ..., within: _Optional[float] = ...) -> None: ...

class Set(_message.Message):
    __slots__ = ("values", "at_most", "clamp")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    AT_MOST_FIELD_NUMBER: _ClassVar[int]
    CLAMP_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    at_most: int
    clamp: bool
    def __init__(self, values: _Optional[_Iterable[str]] = ..., at_most: _Optional[int] = ..., clamp: bool = ...) -> None: ...

class Ratings(_message.Message):
    __slots__ = ("keys", "low", "high", "at_most", "clamp")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    AT_MOST_FIELD_NUMBER: _ClassVar[int]
    CLAMP_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    low: float
    high: float
    at_most: int
    clamp: bool
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., at_most: _Optional[int] = ..., clamp: bool = ...) -> None: ...

class Strings(_message.Message):
    __slots__ = ("alphabet", "longest", "candidates")
    ALPHABET_FIELD_NUMBER: _ClassVar[int]
    LONGEST_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    alphabet: str
    longest: int
    candidates: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, alphabet: _Optional[str] = ..., longest: _Optional[int] = ..., candidates: _Optional[_Iterable[str]] = ...) -> None: ...
