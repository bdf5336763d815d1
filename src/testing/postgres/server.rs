//! Postgres servers that tests start.

use core::time::Duration;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use crate::store::contract::server::ServerAddress;
use crate::testing::certificates::{Authority, Certificate};
use crate::testing::conformance::block_on;
use crate::testing::port::Port;
use crate::testing::{dir, process};

/// A server with its own port, socket and directory. It ends when the value is dropped, or when this
/// process ends.
pub(crate) struct Server {
    /// A shell that ends the server on a word from its input, or when that is closed.
    guard: Child,
    dir: PathBuf,
    pub(crate) port: u16,
    _kept: Port,
}

/// Script of the guard: `$1` is the directory, the rest is the server's command.
const GUARD: &str = r#"
dir=$1; shift
"$@" </dev/null >>"$dir/log" 2>&1 &
server=$!
read -r word
case $word in stop) kill -INT $server ;; *) kill -QUIT $server ;; esac
wait $server
[ -n "$word" ] || rm -rf "$dir"
"#;

/// The user who needs a password to connect to the port; others need none.
pub(crate) const LOCKED: &str = "alice";

impl Server {
    /// Returns the server for tests that neither stop nor configure it.
    pub(crate) fn shared() -> &'static Server {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| Server::start(&[]))
    }

    /// Starts a server, and waits until it is ready. Each of `settings` is `name=value`.
    pub(crate) fn start(settings: &[&str]) -> Server {
        let template = template();
        Server::start_in(new_dir(), settings, &plain_rules(), |data| {
            run("cp", &["-a".as_ref(), template.as_ref(), data.as_ref()]);
        })
    }

    /// Starts a server that only clients with TLS may use, if the rule's `options` let them in. It
    /// has this certificate, and looks at those of its clients by the same authority.
    pub(crate) fn start_with_tls(
        authority: &Authority,
        certificate: &Certificate,
        options: &str,
    ) -> Server {
        let template = template();
        let settings = [
            "ssl=on",
            "ssl_ca_file=roots.pem",
            "ssl_cert_file=certificate.pem",
            "ssl_key_file=key.pem",
            "log_disconnections=on",
        ];
        let rules = format!(
            "hostssl all {LOCKED} 127.0.0.1/32 scram-sha-256 {options}
\
             hostssl all all 127.0.0.1/32 trust {options}
"
        );
        Server::start_in(new_dir(), &settings, &rules, |data| {
            run("cp", &["-a".as_ref(), template.as_ref(), data.as_ref()]);
            certificate.write(authority, data);
            let key = data.join("key.pem");
            run("chmod", &["600".as_ref(), key.as_ref()]);
            if is_root() {
                run("chown", &["postgres".as_ref(), key.as_ref()]);
            }
        })
    }

    /// Starts a replica of this server.
    pub(crate) fn start_replica(&self) -> Server {
        Server::start_in(new_dir(), &[], &plain_rules(), |data| {
            let port = self.port.to_string();
            let backup = program("pg_basebackup");
            let mut command = as_postgres(&backup);
            command
                .args(["-h", "127.0.0.1", "-U", "postgres", "-p", &port, "-c", "fast"])
                .args(["-N", "-R", "-D"])
                .arg(data);
            assert!(command.status().unwrap().success());
        })
    }

    /// Starts a server in a directory. `rules` are those of `pg_hba.conf` for its port.
    fn start_in(dir: PathBuf, settings: &[&str], rules: &str, fill: impl Fn(&Path)) -> Server {
        fill(&dir.join("data"));
        let rules = format!("local all all trust\n{rules}");
        fs::write(dir.join("data/pg_hba.conf"), rules).unwrap();
        let mut settings: Vec<_> = settings.iter().map(ToString::to_string).collect();
        settings.push(format!("unix_socket_directories={}", dir.display()));
        let text = settings.join("\n") + "\n";
        let path = dir.join("data/postgresql.auto.conf");
        let before = fs::read_to_string(&path).unwrap_or_default();
        let quoted = |line: &str| match line.split_once('=') {
            Some((name, value)) => format!("{name} = '{value}'\n"),
            None => String::new(),
        };
        let text: String = text.lines().map(quoted).collect();
        fs::write(&path, before + &text).unwrap();
        let kept = Port::take();
        let port = kept.number;
        let guard = spawn(&dir, port);
        let server = Server { guard, dir, port, _kept: kept };
        assert!(server.becomes_ready(), "postgres does not start: {}", server.log());
        server
    }

    /// Waits until the server answers, at most 60 seconds. Returns whether it did.
    fn becomes_ready(&self) -> bool {
        for _ in 0..6000 {
            if self.try_ask("SELECT 1").is_ok() {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Runs a query in a new session. Returns its rows as text.
    pub(crate) fn ask(&self, query: &str) -> Vec<Vec<String>> {
        self.try_ask(query).unwrap_or_else(|error| panic!("{query}: {error:?}"))
    }

    pub(crate) fn try_ask(&self, query: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
        let ask = async {
            let session = self.session().await?;
            session.simple_query(query).await
        };
        // In another thread, since an asynchronous test may call this.
        let messages = thread::scope(|scope| scope.spawn(|| block_on(ask)).join().unwrap())?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let text = |row: &tokio_postgres::SimpleQueryRow, column| {
            row.get(column).unwrap_or_default().to_owned()
        };
        Ok(rows.map(|row| (0..row.len()).map(|column| text(row, column)).collect()).collect())
    }

    /// Runs a query. Returns the first column of the first row.
    pub(crate) fn value(&self, query: &str) -> String {
        self.ask(query).swap_remove(0).swap_remove(0)
    }

    /// Starts a session of the superuser.
    pub(crate) async fn session(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let stream = tokio::net::UnixStream::connect(self.socket()).await;
        let Ok(stream) = stream else {
            // The library has no other way to create such an error.
            return Err("host=".parse::<Config>().unwrap_err());
        };
        let mut config = Config::new();
        config.user("postgres").dbname("postgres");
        let (client, driver) = config.connect_raw(stream, NoTls).await?;
        tokio::spawn(driver);
        Ok(client)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join(format!(".s.PGSQL.{}", self.port))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn tcp(&self) -> ServerAddress {
        ServerAddress::tcp("127.0.0.1", self.port)
    }

    /// Shuts the server down as an administrator does.
    pub(crate) fn stop(&mut self) {
        self.tell("stop");
    }

    /// Ends the server at once, as by a crash.
    pub(crate) fn crash(&mut self) {
        self.tell("crash");
    }

    fn tell(&mut self, word: &str) {
        let mut stdin = self.guard.stdin.take().unwrap();
        writeln!(stdin, "{word}").unwrap();
        drop(stdin);
        self.guard.wait().unwrap();
    }

    /// Starts a stopped server again, with its data and its port.
    pub(crate) fn start_again(&mut self) {
        self.guard = spawn(&self.dir, self.port);
        assert!(self.becomes_ready());
    }

    /// Sends a signal, such as `STOP` or `CONT`, to all processes of the server.
    pub(crate) fn signal(&self, name: &str) {
        // The main process first, so that it starts no others.
        process::send(name, self.main_process());
        for process in self.sessions() {
            process::send(name, process);
        }
    }

    /// Returns the CPU time of the server's sessions, in nanoseconds.
    #[cfg(feature = "measure")]
    pub(crate) fn cpu_nanos(&self) -> u64 {
        let spent = |process: String| -> Option<u64> {
            let statistics = fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
            statistics.split(' ').next()?.parse().ok()
        };
        self.sessions().into_iter().filter_map(spent).sum()
    }

    fn main_process(&self) -> String {
        let file = fs::read_to_string(self.dir.join("data/postmaster.pid")).unwrap();
        file.lines().next().unwrap().to_owned()
    }

    /// Returns the processes that the main process has started.
    fn sessions(&self) -> Vec<String> {
        let main = self.main_process();
        let mut sessions = Vec::new();
        for process in fs::read_dir("/proc").unwrap() {
            let process = process.unwrap().path();
            let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
            let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
            if parent == Some(&main) {
                sessions.push(process.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
        sessions
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The guard is told nothing more.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns the rules of `pg_hba.conf` for clients without TLS.
fn plain_rules() -> String {
    format!(
        "host all {LOCKED} 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n\
         host replication all 127.0.0.1/32 trust\n"
    )
}

fn spawn(dir: &Path, port: u16) -> Child {
    let server = program("postgres");
    let as_user = as_postgres(&server);
    let mut command = Command::new("sh");
    command.args(["-c", GUARD, "guard"]).arg(dir);
    command.arg(as_user.get_program()).args(as_user.get_args());
    command.arg("-D").arg(dir.join("data"));
    command.args(["-p", &port.to_string()]);
    command.stdin(Stdio::piped()).spawn().unwrap()
}

/// Creates a directory in which the server's user may write.
pub(super) fn new_dir() -> PathBuf {
    let dir = dir::new_dir("postgres");
    if is_root() {
        run("chown", &["postgres".as_ref(), dir.as_ref()]);
    }
    dir
}

/// Returns the files of a new server, which are created once and then copied.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let dir = new_dir();
        let data = dir.join("data");
        let initdb = program("initdb");
        let mut command = as_postgres(&initdb);
        command
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N", "-D"])
            .arg(&data);
        assert!(command.stdout(Stdio::null()).status().unwrap().success());
        let settings = "fsync = off\nshared_buffers = 16MB\nmax_connections = 200\n\
                        listen_addresses = '127.0.0.1'\n";
        fs::write(data.join("postgresql.auto.conf"), settings).unwrap();
        // Removed when this process ends, like the servers.
        let mut guard = Command::new("sh");
        guard.args(["-c", "read -r word; rm -rf \"$1\"", "guard"]);
        let guard = guard.arg(&dir).stdin(Stdio::piped()).spawn().unwrap();
        core::mem::forget(guard);
        data
    })
}

/// Returns a command that runs a program of Postgres, which refuses to run as root.
pub(super) fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]);
    command.arg(program);
    command
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Returns the path of a program of Postgres, which Debian does not put into `PATH`.
fn program(name: &str) -> PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let given = std::env::var_os("TEST_POSTGRES_BIN").map(PathBuf::from);
        let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let versions = installed.map(|version| version.unwrap().path().join("bin"));
        given.or(versions.max()).unwrap_or_else(|| {
            panic!("there is no Postgres: apt-get install postgresql, or set TEST_POSTGRES_BIN")
        })
    });
    dir.join(name)
}

fn run(program: &str, arguments: &[&OsStr]) {
    let status = Command::new(program).args(arguments).status();
    assert!(status.unwrap().success(), "{program}");
}
