"""What an error's own words say of its cause: one table, the first line of it that fits counts.

The order is the rule: a full /dev/shm is also "no space left", a refused rendezvous is also "connection refused".
"""

import re
from dataclasses import dataclass

from whistlestop.diagnosis.findings import Cause

C = Cause


@dataclass(frozen=True)
class Sign:
    cause: Cause
    confidence: float
    pattern: re.Pattern[str]


def _sign(cause: Cause, confidence: float, *words: str) -> Sign:
    return Sign(cause, confidence, re.compile("|".join(words)))


# Whatever their message holds: a path may have any word in it.
TYPES = {
    "FileNotFoundError": (C.MISSING_FILE, 0.97),
    "NotADirectoryError": (C.MISSING_FILE, 0.95),
    "IsADirectoryError": (C.MISSING_FILE, 0.85),
    "ModuleNotFoundError": (C.MISSING_MODULE, 0.99),
    "PermissionError": (C.NOT_ALLOWED, 0.97),
    "UnicodeDecodeError": (C.BAD_DATA, 0.97),
    "MemoryError": (C.HOST_MEMORY, 0.97),
    "FloatingPointError": (C.NON_FINITE, 0.9),
    "ConnectionRefusedError": (C.NETWORK, 0.95),
    "gaierror": (C.NETWORK, 0.97),
    "NameError": (C.CODE_ERROR, 0.95),
    "SyntaxError": (C.CODE_ERROR, 0.97),
    "IndentationError": (C.CODE_ERROR, 0.97),
    "ZeroDivisionError": (C.CODE_ERROR, 0.93),
    "RecursionError": (C.CODE_ERROR, 0.95),
    "KeyboardInterrupt": (C.KILLED_OUTSIDE, 0.9),
}

# Plain enough to be believed on any of the last lines, raised by Python or not.
STRONG = (
    _sign(
        C.SHARED_MEMORY,
        0.96,
        r"insufficient shared memory",
        r"killed by signal: Bus error",
        r"unable to (?:\w+ )*shared memory object",
        r"unable to (?:write to|open|mmap|resize) file </torch_",
        r"/dev/shm.*(?:[Nn]o space|ENOSPC|too small|full)",
        r"(?:[Nn]o space|ENOSPC|too small|Errno 28).*/dev/shm",
        r"shm_open.*fail",
        r"No space left.*'/?torch_\d+_",
    ),
    _sign(
        C.HOST_MEMORY,
        0.96,
        r"^(?:numpy\.\S*)?_?(?:Array)?MemoryError",
        r"Cannot allocate memory",
        r"can't allocate memory",
        r"std::bad_alloc",
        r"Unable to allocate [\d.]+ [KMGTP]?i?B",
        r"not enough memory: you tried to allocate",
        r"\bENOMEM\b",
        r"[Oo]ut of memory: Killed process",
        r"oom[-_]kill",
        r"OOM.*device:CPU",
        r"killed by signal: Killed",
        r"killed due to (?:the )?(?:node|worker)s? running low on memory",
        r"Memory cgroup out of memory",
        r"low memory.*(?:worker|task|actor)s? .*killed",
        r"malloc failed",
        r"failed to allocate memory from the host",
    ),
    _sign(
        C.DEVICE_MEMORY,
        0.98,
        r"(?:CUDA|HIP|MPS|XPU|NPU|GPU|TPU)\b[^.]{0,40} out of memory",
        r"CUDA error: out of memory",
        r"(?:CUBLAS|CUDNN|CUSOLVER)_STATUS_ALLOC_FAILED",
        r"cudaErrorMemoryAllocation",
        r"CUDA_ERROR_OUT_OF_MEMORY",
        r"RESOURCE_EXHAUSTED.*(?:[Oo]ut of memory|OOM|allocat)",
        r"ResourceExhaustedError",
        r"\bOutOfMemoryError\b",
        r"OOM when allocating",
        r"[Oo]ut of memory while trying to allocate",
        r"Ran out of memory in memory space hbm",
        r"exceeds? (?:the )?(?:HBM|hbm|device memory)",
    ),
    _sign(
        C.DISK_FULL,
        0.98,
        r"No space left on device",
        r"Errno 28\b",
        r"\bENOSPC\b",
        r"[Dd]isk quota exceeded",
        r"\bEDQUOT\b",
        r"Errno 122\b",
        r"(?:[Nn]ot|in)\s?(?:enough|sufficient) (?:free )?(?:disk )?space",
        r"database or disk is full",
        r"[Qq]uota exceeded.*(?:disk|storage|bytes)",
        r"Errno 27\b",
        r"StorageFull",
        r"disk is full",
        r"PytorchStreamWriter failed writing",
        r"inline_container.*unexpected pos",
        r"File size limit exceeded",
    ),
    _sign(
        C.DEVICE_FAULT,
        0.95,
        r"\bX[Ii][Dd]\b.{0,20}\d",
        r"uncorrectable",
        r"\bECC\b",
        r"illegal memory access",
        r"fallen off the bus",
        r"CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED|ECC|HARDWARE|ILLEGAL_INSTRUCTION|MISALIGNED|UNKNOWN)",
        r"CUDA error: (?:unspecified launch failure|misaligned address|unknown error|an illegal instruction|"
        r"hardware stack error|the launch timed out)",
        r"(?:CUDNN|CUBLAS)_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)",
        r"GPU is lost",
        r"[Dd]evice lost",
        r"NVML.*(?:Unknown Error|GPU is lost)",
        r"HSA_STATUS_ERROR",
        r"cudaErrorUnknown",
        r"Memory access fault by GPU",
    ),
    _sign(
        C.COMMUNICATION,
        0.95,
        r"\bNCCL\b.*(?:error|WARN|timeout|timed out|abort|unhandled|fail)",
        r"ncclInternalError|ncclSystemError|ncclRemote",
        r"ProcessGroup(?:NCCL|Gloo|UCC|MPI)",
        r"[Ww]atchdog caught collective",
        r"DistBackendError|DistStoreError",
        r"DistNetworkError",
        r"gloo/",
        r"\bgloo\b.*(?:time|clos|reset|fail)",
        r"Connection closed by peer",
        r"(?:TCP|File|Hash|Prefix)Store",
        r"\[c10d\]|\bc10d\b",
        r"[Rr]endezvous",
        r"barrier.*(?:timed out|timeout)",
        r"[Cc]ollective.*(?:timed out|timeout|mismatch)",
        r"Horovod has been shut down|HorovodInternalError",
        r"MPI_ABORT|MPI_ERR|MPI_Abort",
        r"[Cc]oordination ?[Ss]ervice",
        r"Timed out waiting for .*(?:client|rank|peer)s?",
        r"waiting for \d+ (?:clients|ranks|workers)",
        r"[Tt]imed out.*(?:all_?reduce|all_?gather|broadcast|barrier)",
        r"wait timeout after \d+ms",
        r"lost (?:connection to )?(?:its |a )?(?:peer|rank)",
        r"peer .*(?:disconnected|went away)",
        r"ActorDiedError|ActorUnavailableError",
    ),
)

# Of an exception that ended the program.
OTHER = (
    _sign(
        C.MISSING_MODULE,
        0.98,
        r"^ModuleNotFoundError",
        r"^ImportError: .*No module named",
        r"No module named '?[\w.]+",
        r"^ImportError: (?:.* )?(?:requires?|needs?) ",
        r"packages? that (?:was|were) not found in your environment",
        r"cannot open shared object file",
        r"^ImportError",
        r"PackageNotFoundError",
        r"DLL load failed",
    ),
    _sign(
        C.NOT_ALLOWED,
        0.95,
        r"^PermissionError",
        r"Errno 13\b",
        r"\bEACCES\b",
        r"[Pp]ermission denied",
        r"Errno 1\]",
        r"Operation not permitted",
        r"\b40[13]\b.{0,20}(?:Client|Unauth|Forbid|[Ee]rror)|(?:HTTP|[Ss]tatus|code)\D{0,12}40[13]\b",
        r"Unauthorized|Forbidden",
        r"GatedRepo|gated repo",
        r"AccessDenied|Access ?[Dd]enied",
        r"[Ii]nvalid (?:API key|credentials|token|username or|user token)",
        r"NoCredentials|CredentialsError|InvalidAccessKey",
        r"Access to (?:model|dataset) .* is restricted",
        r"Errno 30\b|[Rr]ead-only file system",
        r"[Aa]uthentication(?: failed| required|Error| error)",
        r"api_key not configured|API key must be",
        r"SignatureDoesNotMatch|ExpiredToken",
        r"not authorized",
    ),
    _sign(
        C.MISSING_FILE,
        0.9,
        r"HTTP(?:Status)?Error:? .*404|404 Client Error|\bNoSuchKey\b|NoSuchBucket",
        r"EntryNotFoundError|RepositoryNotFoundError|DatasetNotFoundError|RevisionNotFoundError",
        r"is not a local folder and is not a valid model identifier|not the path to a directory",
    ),
    _sign(
        C.NETWORK,
        0.95,
        r"Name or service not known|[Nn]ame resolution|getaddrinfo|gaierror|NameResolution|nodename nor servname",
        r"Connection ?[Rr]efused",
        r"Connect(?:ion)?Timeout|ReadTimeout|WriteTimeout|PoolTimeout|TimeoutException",
        r"[Cc]onnection timed out|Errno 110\b|Errno 111\b|Errno 113\b|Errno 101\b|Errno -[235]\b",
        r"Max retries exceeded",
        r"URLError",
        r"[Nn]etwork is unreachable|No route to host",
        r"SSLError|SSL:|CERTIFICATE_VERIFY",
        r"RemoteDisconnected|RemoteProtocolError|IncompleteRead|ChunkedEncodingError|ProtocolError",
        r"^(?:\w+\.)*ConnectionError|ConnectError|ClientConnectorError|ServerDisconnectedError",
        r"[Cc]ouldn't connect to|[Cc]an(?:'t|not) (?:reach|connect)|[Ff]ailed to connect|[Cc]ould not connect",
        r"LocalEntryNotFoundError|OfflineModeIsEnabled|offline mode",
        r"HTTP(?:Status)?Error:? .*(?:5\d\d|429)|50[234] Server",
        r"EndpointConnectionError|ServiceUnavailable|Too Many Requests",
        r"^(?:socket\.)?timeout: |^TimeoutError: timed out",
        r"ConnectionResetError|Connection reset by peer|ConnectionAbortedError",
        r"^TimeoutError: .*(?:connect|http|socket|download|request)",
    ),
    _sign(
        C.NON_FINITE,
        0.9,
        r"(?i:\b(?:loss|grad(?:ient)?s?|norm|metric|weights?|logits|output)\b.{0,60}\b(?:nan|inf|non-?finite"
        r"|not finite)\b)",
        r"(?i:\b(?:nan|inf|non-?finite|infinite)\b.{0,40}\b(?:loss|grad(?:ient)?s?|norm|weights?|logits|activation))",
        r"returned nan values in its",
        r"(?i:non-?finite)",
        r"[Mm]inimum loss scale reached",
        r"(?i:loss (?:diverged|exploded))",
        r"NaNs? (?:detected|encountered|found) in (?!(?:the )?(?:data|input|file|csv))",
        r"found invalid values:",
    ),
    _sign(
        C.WRONG_CONFIG,
        0.95,
        r"^(?:\w+\.)*yaml\.|^yaml|ruamel|TOMLDecodeError|^configparser\.",
        r"^omegaconf|^hydra|MissingMandatoryValue",
        r"ConfigAttributeError|ConfigKeyError|ConfigError|ConfigurationError|InvalidConfig",
        r"pydantic|ValidationError",
        r"shapes cannot be multiplied|size mismatch|[Ss]hapes? mismatch|must match the size|mat1 and mat2|matmul: ",
        r"Error\(s\) in loading state_dict|Missing key\(s\)|Unexpected key\(s\)|[Ii]ncompatible (?:shapes|dimensions)",
        r"[Mm]atrix size-incompatible|Dimensions must be equal|dot_general requires|contracting dimension",
        r"Expected input batch_size|to have \d+ channels|could not be broadcast|[Ii]ncompatible with the layer",
        r"cannot reshape (?:array|tensor)|is invalid for input of size"
        r"|shapes? .{1,60}(?:not aligned|incompatible|must match)",
        r"dimensions? .{0,60}(?:mismatch|must match|don't match|do not match)|size of tensor a .* must match",
        r"expected (?:input|size|shape|dim\w*|\d+D).{0,80}(?:got|but|to have)|Given groups=",
        r"Torch not compiled with CUDA|no NVIDIA driver|no CUDA-capable device|[Ii]nvalid device ordinal|No CUDA GPUs",
        r"Unable to initialize backend|[Ii]nvalid device string|CUDA driver version is insufficient",
        r"torch\.cuda\.is_available\(\) is False",
        r"[Ii]nvalid (?:learning[ _]rate|lr|momentum|weight_decay|beta|eps|value|argument|option|choice|config"
        r"|epsilon)",
        r"(?i:\b(?:unknown|unsupported|unrecogni[sz]ed|invalid|no such) (?:\w+ ){0,2}(?:optimi[sz]er|scheduler"
        r"|model|arch\w*|"
        r"activation|loss|option|argument|key|parameter|config\w*|name|mode|backend|dtype|precision|dataset|task"
        r"|setting))",
        r"(?:batch_size|num_workers|num_samples|lr|learning_rate|epochs|dropout|hidden\w*|n_heads|num_heads"
        r"|embed_dim)\b"
        r".{0,40}(?:should|must|has to|cannot|can't|needs)",
        r"must be divisible|divisible by",
        r"dropout probability has to be",
        r"Could not interpret (?:optimizer|loss|activation|metric)",
        r"'(?:\w*Namespace|\w*Config|\w*Args)' object has no attribute",
        r"index out of range in self",
        r"[Mm]issing required|required (?:key|option|setting|field|argument)|^argparse\.|^click\.|NoSuchOption"
        r"|BadParameter",
        r"[Aa]ddress already in use|EADDRINUSE",
    ),
    _sign(
        C.BAD_DATA,
        0.93,
        r"^Unicode(?:Decode)?Error",
        r"BadZipFile|BadGzipFile|zipfile|tarfile|lzma\.|zlib\.error|ReadError|zstandard|lz4",
        r"UnpicklingError|[Pp]ickle data was truncated|Ran out of input|invalid load key|could not find MARK",
        r"Arrow(?:Invalid|TypeError)|[Pp]arquet",
        r"UnidentifiedImageError|image file is truncated|broken data stream",
        r"cannot identify image|DecompressionBomb",
        r"JSONDecodeError|simplejson|orjson|ujson",
        r"csv\.Error|ParserError",
        r"Error tokenizing data|EmptyDataError|could not convert string",
        r"DataLossError|[Cc]orrupt|[Tt]runcated|[Cc]hecksum",
        r"Safetensor|HeaderTooLarge|InvalidHeader|PytorchStreamReader|central directory|file signature not found",
        r"Unable to (?:synchronously )?open (?:file|object)|Cannot interpret header|Failed to interpret file"
        r"|magic (?:string|number|bytes)",
        r"invalid literal for|Invalid (?:JPEG|PNG|image|record|label)|Not a gzipped file|[Uu]nexpected (?:EOF|end of)",
        r"(?:Target|[Ll]abel)s? .{0,40}(?:out of (?:bounds|range)|outside)|Assertion `t >= 0|[Ii]nput contains NaN",
        r"codec can't decode|[Bb]ad (?:sample|record|row|line|label)|[Mm]alformed|device-side assert",
        r"mmap length is greater than file size|contains (?:NaN|infinity)|DatasetGenerationError|cannot mmap an empty",
    ),
    _sign(
        C.MISSING_FILE,
        0.97,
        r"^FileNotFoundError|^NotADirectoryError|^IsADirectoryError",
        r"No such file or directory|Errno 2\b|\bENOENT\b",
        r"(?:file|path|director\w+|folder|checkpoint|dataset)\b.{0,120}(?:does not exist|doesn't exist|not found"
        r"|missing)",
        r"(?:[Cc]ould not|[Cc]ouldn't|[Cc]annot|[Cc]an't) find .{0,60}(?:file|path|director|dataset|data|checkpoint)",
        r"NotFoundError: .*(?:file|path|;)",
        r"Dataset not found|not found or corrupted|unable to open file",
    ),
    _sign(
        C.WRONG_CONFIG,
        0.75,
        r"^ValueError: .*\b(?:must be|should be|expected|is not (?:a )?(?:valid|one of|supported|in)|has to be"
        r"|out of range"
        r"|not allowed|cannot be|choose from|not positive)\b",
    ),
)
