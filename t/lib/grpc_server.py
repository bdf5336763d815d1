"""A gRPC server on the address given: its methods answer with the messages that they get.

Prints a line when it listens, and ends with its standard input.
"""

import sys
from concurrent import futures

import grpc


def last(messages, _context):
    return list(messages)[-1]


METHODS = {
    "Unary": grpc.unary_unary_rpc_method_handler(lambda message, _context: message),
    "ServerStream": grpc.unary_stream_rpc_method_handler(lambda message, _context: iter([message] * 3)),
    "ClientStream": grpc.stream_unary_rpc_method_handler(last),
    "Both": grpc.stream_stream_rpc_method_handler(lambda messages, _context: messages),
}

server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", METHODS)])
if not server.add_insecure_port(sys.argv[1]):
    sys.exit(f"cannot listen on {sys.argv[1]}")
server.start()
print("listening", flush=True)
sys.stdin.read()
server.stop(None)
