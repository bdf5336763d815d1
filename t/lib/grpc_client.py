"""Makes gRPC calls on one channel: grpc_client.py ADDRESS [--at-once] METHOD:KEY...

Prints a line of JSON for each: status code, details, messages, and what came as metadata, be it
before the messages or after. The key is sent as metadata. The method Open is Both with a client
that does not end its messages before it knows the outcome.
"""

import json
import os
import sys
import threading

import grpc

MESSAGES = [b"one", b"two", b"three"]


def still_open(done):
    yield MESSAGES[0]
    done.wait(20)


def begin(channel, method, key):
    done = threading.Event()
    path = "/test.Echo/" + ("Both" if method == "Open" else method)
    options = {"metadata": [("x-key", key)], "timeout": 20}
    if method == "Unary":
        # As a future, so that others can be made at the same time.
        return channel.unary_unary(path).future(MESSAGES[0], **options), done
    if method == "ServerStream":
        return channel.unary_stream(path)(MESSAGES[0], **options), done
    if method == "ClientStream":
        return channel.stream_unary(path).future(iter(MESSAGES), **options), done
    if method == "Both":
        return channel.stream_stream(path)(iter(MESSAGES), **options), done
    return channel.stream_stream(path)(still_open(done), **options), done


def finish(call, done, method):
    messages = []
    try:
        if method in ("Unary", "ClientStream"):
            messages = [call.result()]
        else:
            for message in call:
                messages.append(message)
                done.set()
    except grpc.RpcError:
        pass
    done.set()
    metadata = [*(call.initial_metadata() or ()), *(call.trailing_metadata() or ())]
    return {
        "code": call.code().value[0],
        "details": call.details(),
        "messages": [message.decode() for message in messages],
        "metadata": {name: str(value) for name, value in metadata},
    }


def main():
    address, *calls = sys.argv[1:]
    at_once = calls[0] == "--at-once"
    if at_once:
        del calls[0]
    calls = [call.split(":") for call in calls]
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        begun = []
        for method, key in calls:
            begun.append((*begin(channel, method, key), method))
            if not at_once:
                print(json.dumps(finish(*begun.pop())))
        for call in begun:
            print(json.dumps(finish(*call)))


main()
sys.stdout.flush()
# At its end, the interpreter frees what is left of calls, which may wait for ever for a lock of grpc's.
os._exit(0)
