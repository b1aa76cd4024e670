//! A proxy that a network can be played on: late, deaf, cut, or refused, for all connections or in
//! the middle of one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Result;

/// The most that is passed on at a time.
const CHUNK: usize = 16 * 1024;

/// How the network behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weather {
    /// Everything is passed on.
    #[default]
    Fair,
    /// Everything is passed on after so long.
    Late(Duration),
    /// Nothing is passed on in a direction or in both; nobody is told.
    Deaf(Way),
    /// New connections are closed at once; those that there are go on.
    Closed,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    There,
    /// From the server to the client.
    Back,
    /// Both.
    Both,
}

/// When a connection is cut: around the chunk with this number, of all that are passed on in either
/// direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The chunk is lost with it.
    Before(u64),
    /// The chunk still arrives.
    After(u64),
}

/// A proxy in front of a server, for as long as it lives.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens, on this machine.
    pub port: u16,
    shared: Arc<Shared>,
    _accepting: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    upstream: String,
    weather: watch::Sender<Weather>,
    /// Every change of it cuts all connections.
    cuts: watch::Sender<u64>,
    chunks: AtomicU64,
    cut: Option<Cut>,
}

impl Proxy {
    /// Listens in front of `upstream`, a host and a port; one connection is cut where `cut` says.
    ///
    /// # Errors
    /// When no port is to be had.
    pub async fn start(upstream: &str, cut: Option<Cut>) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            weather: watch::Sender::new(Weather::Fair),
            cuts: watch::Sender::new(0),
            chunks: AtomicU64::new(0),
            cut,
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { port, shared, _accepting: accepting })
    }

    /// Changes how the network behaves.
    pub fn set(&self, weather: Weather) {
        self.shared.weather.send_replace(weather);
    }

    /// Cuts every connection that there is.
    pub fn cut_all(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How many chunks were passed on, or should have been.
    pub fn chunks(&self) -> u64 {
        self.shared.chunks.load(Ordering::Relaxed)
    }

    /// The same URL by way of this proxy.
    ///
    /// # Errors
    /// When it names no host and port.
    pub fn in_front_of(&self, url: &str) -> Result<String> {
        let upstream = authority(url)?;
        Ok(url.replacen(upstream, &format!("127.0.0.1:{}", self.port), 1))
    }
}

/// The host and port of a URL.
///
/// # Errors
/// When it names none.
pub fn authority(url: &str) -> Result<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let whole = rest.split(['/', '?']).next().unwrap_or(rest);
    let authority = whole.rsplit_once('@').map_or(whole, |(_, authority)| authority);
    if authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        return Ok(authority);
    }
    Err("the URL of the server names no host and port: scheme://user@host:port/database".into())
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        if *shared.weather.borrow() == Weather::Closed {
            continue;
        }
        connections.spawn(serve(client, Arc::clone(&shared)));
    }
}

/// Serves one connection until either side ends it, or it is cut.
async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    cuts.mark_unchanged();
    let Ok(server) = TcpStream::connect(&shared.upstream).await else { return };
    // A chunk is what was written at once, and goes on at once.
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    // Whichever ends first ends the other, and drops all four halves: a connection is cut whole.
    tokio::select! {
        _ = pump(client_in, server_out, Way::There, &shared) => {}
        _ = pump(server_in, client_out, Way::Back, &shared) => {}
        _ = cuts.changed() => {}
    }
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    way: Way,
    shared: &Shared,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let number = shared.chunks.fetch_add(1, Ordering::Relaxed) + 1;
        if shared.cut == Some(Cut::Before(number)) {
            return Ok(());
        }
        shared.weather(way).await;
        to.write_all(&buffer[..length]).await?;
        if shared.cut == Some(Cut::After(number)) {
            to.flush().await?;
            return Ok(());
        }
    }
}

impl Shared {
    /// Waits as long as the weather says.
    async fn weather(&self, way: Way) {
        let mut weather = self.weather.subscribe();
        loop {
            let now = *weather.borrow_and_update();
            match now {
                Weather::Deaf(deaf) if deaf == way || deaf == Way::Both => {}
                Weather::Late(by) => return tokio::time::sleep(by).await,
                _ => return,
            }
            if weather.changed().await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    async fn echo() -> (String, JoinSet<()>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                all.spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await.ok();
                });
            }
        });
        (address, serving)
    }

    /// Says something and returns what comes back; nothing when the connection was cut.
    async fn say(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
        stream.write_all(b"hello").await?;
        let mut answer = vec![0; 5];
        let length = stream.read(&mut answer).await?;
        answer.truncate(length);
        Ok(answer)
    }

    async fn connect(proxy: &Proxy) -> TcpStream {
        TcpStream::connect(("127.0.0.1", proxy.port)).await.unwrap()
    }

    #[tokio::test]
    async fn a_connection_is_cut_at_the_chunk_and_no_other() {
        let (upstream, _serving) = echo().await;
        for (cut, answered) in [(Cut::Before(3), 1), (Cut::After(3), 1), (Cut::After(4), 2)] {
            let proxy = Proxy::start(&upstream, Some(cut)).await.unwrap();
            let mut stream = connect(&proxy).await;
            for _ in 0..answered {
                assert_eq!(say(&mut stream).await.unwrap(), b"hello");
            }
            assert!(say(&mut stream).await.map_or(true, |answer| answer.is_empty()), "{cut:?}");
            assert_eq!(say(&mut connect(&proxy).await).await.unwrap(), b"hello", "healed");
        }
    }

    #[tokio::test]
    async fn a_deaf_network_tells_nobody_and_loses_nothing() {
        let (upstream, _serving) = echo().await;
        let proxy = Proxy::start(&upstream, None).await.unwrap();
        let mut stream = connect(&proxy).await;
        proxy.set(Weather::Deaf(Way::Back));
        let soon = Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, say(&mut stream)).await.is_err());

        proxy.set(Weather::Fair);

        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"hello");
    }

    #[tokio::test]
    async fn all_are_cut_and_new_ones_refused() {
        let (upstream, _serving) = echo().await;
        let proxy = Proxy::start(&upstream, None).await.unwrap();
        let mut stream = connect(&proxy).await;
        assert_eq!(say(&mut stream).await.unwrap(), b"hello");
        proxy.set(Weather::Closed);
        proxy.cut_all();

        assert!(say(&mut stream).await.map_or(true, |answer| answer.is_empty()));
        assert!(say(&mut connect(&proxy).await).await.map_or(true, |answer| answer.is_empty()));
    }

    #[tokio::test]
    async fn the_port_of_a_url_is_exchanged_and_nothing_else() {
        let url = "postgres://me:5432@127.0.0.1:5432/a?x=5432";
        let proxy = Proxy::start(authority(url).unwrap(), None).await.unwrap();

        let by_way_of_it = proxy.in_front_of(url).unwrap();

        let expected = format!("postgres://me:5432@127.0.0.1:{}/a?x=5432", proxy.port);
        assert_eq!(by_way_of_it, expected);
        assert_eq!(authority("mysql://root@localhost:3306/test").unwrap(), "localhost:3306");
        assert!(proxy.in_front_of("postgres:///test").is_err());
    }
}
