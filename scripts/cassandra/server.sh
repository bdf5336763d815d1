#!/usr/bin/env bash
# A real Cassandra for tests, small and quick to start: from Maven Central, since Debian has no package.
#
#   server.sh jars                        fetches it into target/cassandra, once; prints the directory
#   server.sh start [OPTION...] DIR       starts one with its files in DIR, or again with what it has
#                                         there; returns when it takes queries
#   server.sh serve [OPTION...] DIR       the same, then prints its address, and ends it when the
#                                         standard input ends: so with whoever holds the other end
#   server.sh with [OPTION...] COMMAND... runs a command with a server, TEST_CASSANDRA being its DIR
#   server.sh stop DIR                    ends one as its administrator does; without error if none runs
#   server.sh kill DIR                    as if it had crashed
#
#   TEST_CASSANDRA_VERSION                another version than that of pom.xml
#
# A server that cannot start is an error at once, with the end of its log. DIR has the files
#
#   address, pid, log                     ADDRESS:PORT, and what they say
#   tls/                                  roots.pem, and *.pem with *.key: see --tls
#
# Options:
#
#   --address ADDRESS   of 127.0.0.0/8; 127.0.0.1 unless given
#   --port PORT         of CQL; the next one is for other nodes. 9042 unless given
#   --heap SIZE         192m unless given; it takes some 300 MB more. A node of a ring wants 400m
#   --memtable SIZE     how much of the heap is for what is not in files yet; 64MiB unless given. Cassandra itself
#                       would take a quarter of the heap
#   --durable           what it has answered outlives a kill; else the last tenth of a second may not
#   --ephemeral         for a server that is thrown away: quicker, but the schema does not outlive a kill
#   --auth              users need a password; there is cassandra, with the password cassandra
#   --tls MODE          `optional`, `required`, or `mutual`: clients need a certificate too. For the
#                       server: tls/server.pem; for clients: tls/client.pem; both by tls/roots.pem
#   --seed ADDRESS      the first node of the ring of which this one is to be. Nodes are started one by
#                       one, and have one port, and addresses of their own
#   --token TOKEN       where in the ring it is
#   --replace           it takes the place of the node of its address, whose files are gone, and gets from the others
#                       what that had
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

here=$root/scripts/cassandra
version=${TEST_CASSANDRA_VERSION:-}
jars=$root/target/cassandra/jars${version:+-$version}
server=
# Machines that often run tests have Java and Maven; Cassandra needs this version of Java, neither
# older nor newer.
java=

need_java() {
    for java in java /usr/lib/jvm/java-17-*/bin/java; do
        ! "$java" -version 2>&1 | grep -q 'version "17\.' || return 0
    done
    need_packages openjdk-17-jre-headless
    for java in /usr/lib/jvm/java-17-*/bin/java; do
        [ ! -x "$java" ] || return 0
    done
    die "there is no Java 17"
}

fetch_jars() {
    local lock
    mkdir -p "$root/target/cassandra"
    # The other processes wait for the first one.
    exec {lock}>"$root/target/cassandra/lock"
    flock "$lock"
    cached_tree "$jars" "$(sha256sum <"$here/pom.xml")" fill_jars
    exec {lock}>&-
    printf '%s\n' "$jars"
}

fill_jars() {
    need_packages maven &&
        MAVEN_OPTS=-Xmx512m mvn --batch-mode --strict-checksums --file "$here/pom.xml" \
            org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
            -DincludeScope=runtime -DoutputDirectory="$PWD" ${version:+"-Dcassandra.version=$version"} &&
        ls cassandra-all-*.jar
}

# parse OPTION... REST...: sets the options, and `rest`.
parse() {
    address=127.0.0.1 port=9042 heap=192m memtable=64MiB seed='' token='' ephemeral='' durable='' auth='' tls='' replace=''
    while [ $# -gt 0 ]; do
        case $1 in
            --ephemeral | --durable | --auth | --replace) printf -v "${1#--}" yes ;;
            --address | --port | --heap | --memtable | --seed | --token | --tls)
                [ $# -gt 1 ] || die "$1 takes a value"
                printf -v "${1#--}" %s "$2"
                shift
                ;;
            --*) die "no option $1: see the first lines of $0" ;;
            *) break ;;
        esac
        shift
    done
    rest=("$@")
    [ $# -gt 0 ] || die "what it is for is missing: see the first lines of $0"
}

# Makes an authority, with a certificate for the server and one for clients.
certificates() {
    local name
    need_packages openssl
    mkdir -p "$dir/tls"
    cd "$dir/tls"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj '/CN=authority of tests' -keyout roots.key -out roots.pem
    for name in server client; do
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
            -subj "/CN=$name" -keyout $name.key -out $name.request
        openssl x509 -req -in $name.request -CA roots.pem -CAkey roots.key -CAcreateserial \
            -days 3650 -out $name.pem \
            -extfile <(echo "subjectAltName=DNS:cassandra.test,IP:$address")
        rm $name.request
    done
    # In the form that Cassandra requires: a PKCS 8 key, followed by its certificates.
    cat server.key server.pem >server-and-key.pem
    cd "$OLDPWD"
}

configuration() {
    cat <<END
cluster_name: tests
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
listen_address: $address
rpc_address: $address
native_transport_port: $port
storage_port: $((port + 1))
ssl_storage_port: $((port + 1))
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{seeds: "${seed:-$address}:$((port + 1))"}]
num_tokens: 1
${token:+initial_token: \"$token\"}
auto_bootstrap: $([ -n "$replace" ] && echo true || echo false)
endpoint_snitch: SimpleSnitch
dynamic_snitch: false
data_file_directories: [$dir/data/data]
commitlog_directory: $dir/data/commitlog
hints_directory: $dir/data/hints
saved_caches_directory: $dir/data/saved_caches
cdc_raw_directory: $dir/data/cdc_raw
commitlog_segment_size: 16MiB
commitlog_total_space: 128MiB
memtable_allocation_type: unslabbed_heap_buffers
memtable_heap_space: $memtable
memtable_offheap_space: 32MiB
file_cache_enabled: false
key_cache_size: 4MiB
counter_cache_size: 0MiB
row_cache_size: 0MiB
concurrent_reads: 8
concurrent_writes: 8
concurrent_counter_writes: 2
concurrent_compactors: 1
native_transport_max_threads: 16
auto_snapshot: false
incremental_backups: false
END
    if [ -n "$durable" ]; then
        echo 'commitlog_sync: batch'
    else
        printf 'commitlog_sync: periodic\ncommitlog_sync_period: 10000ms\n'
    fi
    if [ -n "$auth" ]; then
        cat <<END
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
roles_validity: 500ms
permissions_validity: 500ms
credentials_validity: 500ms
END
    fi
    [ -z "$tls" ] || cat <<END
client_encryption_options:
  enabled: true
  optional: $([ "$tls" = optional ] && echo true || echo false)
  require_client_auth: $([ "$tls" = mutual ] && echo true || echo false)
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
  keystore: $dir/tls/server-and-key.pem
  truststore: $dir/tls/roots.pem
END
}

# Replaces this process by the server.
become_server() {
    local it flags=()
    # The packages that Cassandra's own conf/jvm17-server.options opens.
    for it in java.lang java.lang.module java.lang.reflect java.io java.util java.nio \
        java.util.concurrent java.util.concurrent.atomic jdk.internal.loader jdk.internal.ref \
        jdk.internal.reflect jdk.internal.math jdk.internal.module jdk.internal.util.jar sun.nio.ch; do
        flags+=(--add-opens "java.base/$it=ALL-UNNAMED")
    done
    flags+=(--add-opens jdk.management/com.sun.management.internal=ALL-UNNAMED)
    for it in java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch \
        java.base/java.lang.ref java.management.rmi/com.sun.jmx.remote.internal.rmi \
        java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.sql/java.sql \
        jdk.unsupported/sun.misc jdk.attach/sun.tools.attach; do
        flags+=(--add-exports "$it=ALL-UNNAMED")
    done
    # A JVM for a short life: little memory, the simplest collector, and only the first compiler.
    flags+=("-Xms$heap" "-Xmx$heap" -Xss256k -XX:MaxDirectMemorySize=128m -XX:+UseSerialGC
        -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djdk.attach.allowAttachSelf=true
        -Dio.netty.tryReflectionSetAccessible=true -Djava.net.preferIPv4Stack=true
        "-Djava.io.tmpdir=$dir/tmp" "-Djna.tmpdir=$dir/tmp"
        "-Dlogback.configurationFile=file://$here/logback.xml")
    # No waits for other nodes, and no measurements of known constants: 181 bytes are this
    # version's.
    flags+=("-Dcassandra.storagedir=$dir/data" "-Dcassandra.config=file://$dir/cassandra.yaml"
        -Dcassandra-foreground=yes -Dcassandra.skip_wait_for_gossip_to_settle=0
        -Dcassandra.ring_delay_ms=100 -Dcassandra.superuser_setup_delay_ms=0
        -Dcassandra.shutdown_announce_in_ms=0 -Dcassandra.auth_bcrypt_gensalt_log2_rounds=4 -Dcassandra.available_processors=2
        -Dcassandra.max_local_pause_in_ms=60000 -Dcassandra.consistent.rangemovement=false
        -Dcassandra.memtable.row_overhead_size=181)
    [ -z "$ephemeral" ] || flags+=(-Dcassandra.unsafesystem=true)
    [ -z "$replace" ] || flags+=("-Dcassandra.replace_address_first_boot=$address")
    # As Cassandra's own scripts do. Without it, version 4.1 cannot measure objects in this version of Java.
    flags+=("-javaagent:$(echo "$jars"/jamm-*.jar)")
    exec "$java" "${flags[@]}" -cp "$jars/*" org.apache.cassandra.service.CassandraDaemon
}

# Sets `server` to the process, if there is one. Its starter knows it even if the directory is gone.
is_running() {
    server=${server:-$(cat "$dir/pid" 2>/dev/null || true)}
    [ -n "$server" ] && kill -0 "$server" 2>/dev/null
}

# Starts the process in a form that `server` finds.
launch() {
    server=
    : >"$dir/log"
    # Signals to the starter's group do not reach the server, which the starter ends in order.
    (set -m; (become_server) </dev/null >>"$dir/log" 2>&1 & echo $! >"$dir/pid")
}

start() {
    local i launches=1
    ! is_running || die "one runs in $dir already"
    need_java
    fetch_jars >/dev/null
    mkdir -p "$dir/tmp"
    case $tls in
        '') ;;
        optional | required | mutual) [ -e "$dir/tls/roots.pem" ] || certificates 2>>"$dir/log" ;;
        *) die "--tls is optional, required or mutual" ;;
    esac
    configuration >"$dir/cassandra.yaml"
    printf '%s:%s\n' "$address" "$port" >"$dir/address"
    launch
    for ((i = 0; i < 1800; i++)); do
        # Not by connecting, since another process may have the port.
        ! grep -q 'Startup complete' "$dir/log" || return 0
        if ! is_running; then
            # A node that joins a ring waits one second for an answer, which is too short on a busy
            # machine.
            grep -q 'Unable to gossip with any peers' "$dir/log" && ((launches++ < 5)) || break
            launch
        fi
        sleep 0.1
    done
    ! is_running || kill -KILL "$server"
    tail -n 30 "$dir/log" >&2
    die "Cassandra does not start: see $dir/log"
}

# finish SIGNAL
finish() {
    local i
    for ((i = 0; i < 300; i++)); do
        is_running || { rm -f "$dir/pid"; return 0; }
        # A stopped process would not notice the signal.
        [ $i != 0 ] || kill "-$1" "$server" && kill -CONT "$server" || true
        sleep 0.1
    done
    kill -KILL "$server"
}

do_what=${1:-}
shift || true
case $do_what in
    jars) fetch_jars ;;
    start | serve | with | stop | kill)
        parse "$@"
        if [ "$do_what" = with ]; then
            dir=$(mktemp -d "${TMPDIR:-/tmp}/cassandra-XXXXXX")
            trap 'finish KILL; rm -rf "$dir"' EXIT
        else
            [ ${#rest[@]} = 1 ] || die "one directory: not ${rest[*]}"
            dir=$(realpath -m "${rest[0]}")
        fi
        case $do_what in
            start) start ;;
            stop) finish TERM ;;
            kill) finish KILL ;;
            serve)
                trap 'finish KILL' EXIT
                trap 'exit 130' INT TERM
                start
                cat "$dir/address"
                cat >/dev/null
                ;;
            with)
                trap 'exit 130' INT TERM
                start
                TEST_CASSANDRA=$dir "${rest[@]}"
                ;;
        esac
        ;;
    *) die "usage: $0 jars|start|serve|with|stop|kill: see its first lines" ;;
esac
