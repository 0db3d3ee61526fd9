"""Errors in the words of the libraries that raise them, with the cause that a person would name."""

from whistlestop.diagnosis.findings import Cause

SAID: dict[Cause, tuple[str, ...]] = {
    Cause.DEVICE_MEMORY: (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB (GPU 3; 23.65 GiB "
        "total capacity)",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 64.00 MiB.",
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: MPS backend out of memory (MPS allocated: 17.74 GB, other allocations: 384.00 KB, "
        "max: 18.13 GB)",
        "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape"
        "[512,64,112,112] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
        "8589934592 bytes.",
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory "
        "in memory "
        "space hbm. Used 17.21G of 15.48G hbm.",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 0 bytes).",
    ),
    Cause.HOST_MEMORY: (
        "MemoryError",
        "numpy.core._exceptions.MemoryError: Unable to allocate 74.5 GiB for an array with shape (100000, 100000)",
        "OSError: [Errno 12] Cannot allocate memory",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:114] err == 0. DefaultCPUAllocator: can't allocate "
        "memory: you tried "
        "to allocate 400000000000 bytes. Error code 12 (Cannot allocate memory)",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "RuntimeError: DataLoader worker (pid 4321) is killed by signal: Killed. ",
        "pyarrow.lib.ArrowMemoryError: malloc of size 137438953472 failed",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with "
        "shape[9,9] and "
        "type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
    ),
    Cause.SHARED_MEMORY: (
        "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
        "RuntimeError: unable to write to file </torch_12_98_0>: No space left on device (28)",
        "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1f2a'",
        "RuntimeError: unable to open shared memory object </torch_29_33> in read-write mode: Too many open files (24)",
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_5_1_0>: Resource temporarily "
        "unavailable (11)",
    ),
    Cause.DISK_FULL: (
        "RuntimeError: basic_ios::clear: iostream error",
        "OSError: [Errno 28] No space left on device",
        "OSError: [Errno 122] Disk quota exceeded: 'out/model.bin'",
        "RuntimeError: PytorchStreamWriter failed writing file data/13: file write failed",
        "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 704 vs 598",
        "sqlite3.OperationalError: database or disk is full",
        "OSError: 1048576 requested and 16368 written",
        "OSError: Not enough disk space. Needed: Unknown size (download: 12 GB)",
        "h5py.h5.error: OSError: [Errno 28] Can't write data (file write failed: No space left on device)",
        "safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: StorageFull, "
        'message: "No space left on device" })',
    ),
    Cause.DEVICE_FAULT: (
        "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: CUDA error: unspecified launch failure",
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access",
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "pynvml.NVMLError_GpuIsLost: GPU is lost",
        "RuntimeError: CUDA error: hardware stack error",
    ),
    Cause.COMMUNICATION: (
        "threading.BrokenBarrierError",
        "RuntimeError: Rank 0 timed out in monitoredBarrier after 30000 ms.",
        "torch.distributed.DistBackendError: NCCL error in: "
        "../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled "
        "system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:46116",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
        "1800000ms for "
        "recv operation to complete",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to "
        "connect to "
        "(10.0.0.1, 29500).",
        "RuntimeError: Socket Timeout in TCPStore get",
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an "
        "exception on "
        "one of the ranks",
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: PjRT_Client_Connect::0.",
        "RuntimeError: Broken pipe in c10d store",
        "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: failed to "
        "connect to all "
        "addresses; The error could be from a previous operation. Restart your program to reset.",
    ),
    Cause.MISSING_MODULE: (
        "ModuleNotFoundError: No module named 'cv2'",
        "ImportError: cannot import name 'LlamaFlash' from 'transformers' (/env/transformers/__init__.py)",
        "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory",
        "ImportError: Using `low_cpu_mem_usage=True` requires Accelerate: `pip install 'accelerate>=0.26.0'`",
        "ImportError: This modeling file requires the following packages that were not found in your "
        "environment: einops.",
    ),
    Cause.MISSING_FILE: (
        "sqlite3.OperationalError: unable to open database file",
        "ValueError: no files match 'data/*.csv'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/parquet/corrupt/train.bin'",
        "NotADirectoryError: [Errno 20] Not a directory: '/data/train.tar/0001'",
        "huggingface_hub.errors.EntryNotFoundError: 404 Client Error. Entry Not Found for url: "
        "https://x.co/a/config.json.",
        "OSError: my/model is not a local folder and is not a valid model identifier listed on 'https://x.co/models'",
        "datasets.exceptions.DatasetNotFoundError: Dataset 'squadx' doesn't exist on the Hub or cannot be accessed.",
        "RuntimeError: Dataset not found. You can use download=True to download it",
        "botocore.errorfactory.NoSuchKey: An error occurred (NoSuchKey) when calling the GetObject operation: The "
        "specified key does not exist.",
        "tensorflow.python.framework.errors_impl.NotFoundError: data/train.tfrecord; No such file or directory",
        "urllib.error.HTTPError: HTTP Error 404: Not Found",
        "ValueError: Unable to find a checkpoint: the directory runs/7 does not exist",
        "pyarrow.lib.ArrowInvalid: [Errno 2] No such file or directory: 'x.parquet'",
    ),
    Cause.NOT_ALLOWED: (
        "sqlite3.OperationalError: attempt to write a readonly database",
        "RuntimeError: the token has expired, log in again",
        "PermissionError: [Errno 13] Permission denied: '/mnt/shared/out'",
        "OSError: [Errno 30] Read-only file system: '/models/cache'",
        "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://x.co/api",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url "
        "https://x.co/l/resolve",
        "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the PutObject operation",
        "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
        "wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "urllib.error.HTTPError: HTTP Error 401: Unauthorized",
        "google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found.",
        "service.AuthenticationError: Error code: 401 - {'error': {'message': 'Incorrect API key provided'}}",
    ),
    Cause.NETWORK: (
        "http.client.BadStatusLine: HTTP/0.0 000",
        "OSError: [Errno 99] Cannot assign requested address",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x.co', port=443): Max retries "
        "exceeded with url: /a",
        "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='x.co', port=443): Read timed out. (read "
        "timeout=10)",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "httpx.ConnectError: [Errno 113] No route to host",
        "OSError: We couldn't connect to 'https://x.co' to load the files, and couldn't find them in the cached files.",
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1006)",
        "http.client.RemoteDisconnected: Remote end closed connection without response",
        'botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://s3.x.com/"',
        "TimeoutError: timed out",
        "TimeoutError: [Errno 110] Connection timed out",
        "urllib.error.URLError: <urlopen error timed out>",
        "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host x.co:443 ssl:default",
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://x.co/a",
        "http.client.IncompleteRead: IncompleteRead(512 bytes read, 1024 more expected)",
    ),
    Cause.WRONG_CONFIG: (
        "ValueError: could not broadcast input array from shape (3,) into shape (4,)",
        "RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 4 but got size 3",
        "RuntimeError: input.size(-1) must be equal to input_size. Expected 10, got 8",
        "RuntimeError: Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [8, 10]",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x784 and 512x10)",
        "RuntimeError: The size of tensor a (128) must match the size of tensor b (64) at non-singleton dimension 1",
        "RuntimeError: Error(s) in loading state_dict for Net:",
        "RuntimeError: Given groups=1, weight of size [64, 3, 7, 7], expected input[8, 1, 28, 28] to have 3 "
        "channels, but "
        "got 1 channels instead",
        "ValueError: shapes (32,784) and (512,10) not aligned: 784 (dim 1) != 512 (dim 0)",
        "ValueError: operands could not be broadcast together with shapes (3,) (4,)",
        "ValueError: Invalid learning rate: -0.1",
        "ValueError: Unknown optimizer: adamz",
        "ValueError: batch_size should be a positive integer value, but got batch_size=0",
        "ValueError: num_samples should be a positive integer value, but got num_samples=0",
        "AssertionError: embed_dim must be divisible by num_heads",
        "yaml.scanner.ScannerError: mapping values are not allowed here",
        "yaml.parser.ParserError: while parsing a block mapping",
        "tomllib.TOMLDecodeError: Invalid value (at line 3, column 8)",
        "omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct",
        "hydra.errors.ConfigCompositionException: Could not override 'optim.lrr'.",
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for Config",
        "AttributeError: 'Namespace' object has no attribute 'lr'",
        "TypeError: dot_general requires contracting dimensions to have the same shape, got (784,) and (512,).",
        "RuntimeError: Expected input batch_size (32) to match target batch_size (16).",
        "AssertionError: Torch not compiled with CUDA enabled",
        "RuntimeError: CUDA error: invalid device ordinal",
        "RuntimeError: shape '[32, 784]' is invalid for input of size 12544",
        "ValueError: cannot reshape array of size 100 into shape (7,7)",
        "ValueError: 'adamw2' is not a valid OptimizerName",
        "ValueError: Could not interpret optimizer identifier: adamz",
        "configparser.NoOptionError: No option 'lr' in section: 'train'",
        "ValueError: dropout probability has to be between 0 and 1, but got 1.5",
        "ValueError: learning_rate must be positive, got -1",
        "jsonschema.exceptions.ValidationError: 'lr' is a required property",
        "IndexError: index out of range in self",
    ),
    Cause.BAD_DATA: (
        "ValueError: Failed to read all data for array. Expected (1000,) = 1000 elements, could only read 12 elements.",
        "ValueError: time data '2021-13-01' does not match format '%Y-%m-%d'",
        "ValueError: buffer size must be a multiple of element size",
        "OSError: Invalid data stream",
        "sqlite3.DatabaseError: file is not a database",
        "zipfile.BadZipFile: Bad CRC-32 for file 'x.npy'",
        "RuntimeError: sha256 of shard 3 does not match its manifest",
        "ValueError: Object arrays cannot be loaded when allow_pickle=False",
        "ValueError: Some errors were detected ! Line #3 (got 2 columns instead of 3)",
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        "zipfile.BadZipFile: File is not a zip file",
        "EOFError: Compressed file ended before the end-of-stream marker was reached",
        "EOFError: Ran out of input",
        "EOFError: No data left in file",
        "zlib.error: Error -3 while decompressing data: incorrect header check",
        "tarfile.ReadError: unexpected end of data",
        "_pickle.UnpicklingError: invalid load key, 'x'.",
        "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or "
        "this is not a "
        "parquet file.",
        "PIL.UnidentifiedImageError: cannot identify image file 'data/17.jpg'",
        "OSError: image file is truncated (12 bytes not processed)",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "pandas.errors.ParserError: Error tokenizing data. C error: Expected 4 fields in line 3, saw 5",
        "ValueError: could not convert string to float: 'N/A'",
        "ValueError: invalid literal for int() with base 10: 'cat'",
        "tensorflow.python.framework.errors_impl.DataLossError: corrupted record at 12",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
        "OSError: Unable to synchronously open file (file signature not found)",
        "ValueError: Cannot load file containing pickled data when allow_pickle=False",
        "IndexError: Target 11 is out of bounds.",
        "lzma.LZMAError: Input format not supported by decoder",
        "pandas.errors.EmptyDataError: No columns to parse from file",
        "gzip.BadGzipFile: Not a gzipped file (b'PK')",
        "_csv.Error: line contains NUL",
        "struct.error: unpack requires a buffer of 4 bytes",
        "ValueError: not enough values to unpack (expected 2, got 1) in row 17 of train.csv",
        "binascii.Error: Incorrect padding",
        "soundfile.LibsndfileError: Error opening 'a.wav': Format not recognised.",
        "xml.etree.ElementTree.ParseError: mismatched tag: line 3, column 2",
    ),
    Cause.NON_FINITE: (
        "FloatingPointError: Loss is nan",
        "ValueError: loss became NaN at step 120",
        "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.",
        "RuntimeError: Non-finite gradient norm",
        "FloatingPointError: invalid value (nan) encountered in jit(loss)",
        "AssertionError: loss is not finite: inf",
    ),
    Cause.CODE_ERROR: (
        "ZeroDivisionError: division by zero",
        "IndexError: list index out of range",
        "TypeError: unsupported operand type(s) for +: 'NoneType' and 'float'",
        "AttributeError: 'NoneType' object has no attribute 'backward'",
        "NameError: name 'los' is not defined",
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
        "RuntimeError: Trying to backward through the graph a second time",
        "NotImplementedError: forward",
        "UnboundLocalError: cannot access local variable 'x' where it is not associated with a value",
        "RuntimeError: dictionary changed size during iteration",
        "StopIteration",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        "TypeError: forward() missing 1 required positional argument: 'y'",
        "KeyError: 'labels'",
        "AssertionError",
        "IndexError: index 10 is out of bounds for axis 0 with size 10",
        "TypeError: 'int' object is not callable",
        "RecursionError: maximum recursion depth exceeded",
    ),
}
