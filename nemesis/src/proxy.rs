//! A proxy that a network can be played on: late, deaf, cut, reset, half-open, or refused, for all
//! connections or in the middle of one.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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

/// How a connection ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// Both sides are told that nothing more comes.
    #[default]
    Close,
    /// Both sides are told that it is no more.
    Reset,
    /// The server is told; the client waits for so long before it is.
    HalfOpen(Duration),
}

/// Where the next connection ends that passes so many bytes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// In which direction; not in both.
    pub way: Way,
    /// After how many bytes, counted from now on over all connections.
    pub bytes: usize,
    /// And how.
    pub ending: Ending,
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
    /// Every change of it ends all connections.
    cuts: watch::Sender<(u64, Ending)>,
    chunks: AtomicU64,
    cut: Option<Cut>,
    trap: Mutex<Option<Trap>>,
    sprung: AtomicU64,
    /// The ports by which the server knows the connections.
    ports: Mutex<BTreeSet<u16>>,
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
            cuts: watch::Sender::new((0, Ending::Close)),
            chunks: AtomicU64::new(0),
            cut,
            trap: Mutex::default(),
            sprung: AtomicU64::new(0),
            ports: Mutex::default(),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { port, shared, _accepting: accepting })
    }

    /// Changes how the network behaves.
    pub fn set(&self, weather: Weather) {
        self.shared.weather.send_replace(weather);
    }

    /// Ends every connection that there is.
    pub fn end_all(&self, ending: Ending) {
        self.shared.cuts.send_modify(|(cuts, how)| (*cuts, *how) = (*cuts + 1, ending));
    }

    /// Sets a trap, in place of any that was not sprung.
    pub fn lay(&self, trap: Trap) {
        *self.shared.trap.lock().unwrap_or_else(PoisonError::into_inner) = Some(trap);
    }

    /// How many traps were sprung.
    pub fn sprung(&self) -> u64 {
        self.shared.sprung.load(Ordering::Relaxed)
    }

    /// The ports by which the server knows the connections that there are.
    pub fn ports(&self) -> Vec<u16> {
        let ports = self.shared.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.iter().copied().collect()
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
async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    cuts.mark_unchanged();
    let Ok(mut server) = TcpStream::connect(&shared.upstream).await else { return };
    let Ok(port) = server.local_addr().map(|address| address.port()) else { return };
    let _listed = Listed::new(&shared, port);
    // A chunk is what was written at once, and goes on at once.
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let (client_in, client_out) = client.split();
    let (server_in, server_out) = server.split();
    // Whichever ends first ends the other: a connection is cut whole.
    let ending = tokio::select! {
        ending = pump(client_in, server_out, Way::There, &shared) => ending.unwrap_or_default(),
        ending = pump(server_in, client_out, Way::Back, &shared) => ending.unwrap_or_default(),
        _ = cuts.changed() => cuts.borrow().1,
    };
    match ending {
        Ending::Close => {}
        Ending::Reset => {
            client.set_zero_linger().ok();
            server.set_zero_linger().ok();
        }
        Ending::HalfOpen(length) => {
            drop(server);
            tokio::time::sleep(length).await;
        }
    }
}

/// A port that is told to whoever asks, for as long as the connection lives.
struct Listed<'a>(&'a Shared, u16);

impl<'a> Listed<'a> {
    fn new(shared: &'a Shared, port: u16) -> Self {
        shared.ports.lock().unwrap_or_else(PoisonError::into_inner).insert(port);
        Self(shared, port)
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.0.ports.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    way: Way,
    shared: &Shared,
) -> io::Result<Ending> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(Ending::Close);
        }
        let number = shared.chunks.fetch_add(1, Ordering::Relaxed) + 1;
        if shared.cut == Some(Cut::Before(number)) {
            return Ok(Ending::Close);
        }
        shared.weather(way).await;
        if let Some((bytes, ending)) = shared.spring(way, length) {
            to.write_all(&buffer[..bytes]).await?;
            to.flush().await?;
            return Ok(ending);
        }
        to.write_all(&buffer[..length]).await?;
        if shared.cut == Some(Cut::After(number)) {
            to.flush().await?;
            return Ok(Ending::Close);
        }
    }
}

impl Shared {
    /// How many of these bytes still go on and how the connection ends then, if here is the trap.
    fn spring(&self, way: Way, length: usize) -> Option<(usize, Ending)> {
        let mut laid = self.trap.lock().unwrap_or_else(PoisonError::into_inner);
        let trap = laid.as_mut().filter(|trap| trap.way == way)?;
        if trap.bytes >= length {
            trap.bytes -= length;
            return None;
        }
        let sprung = (trap.bytes, trap.ending);
        *laid = None;
        self.sprung.fetch_add(1, Ordering::Relaxed);
        Some(sprung)
    }

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
mod tests;
