//! A TCP proxy that injects network faults: delay, silence, refused, closed, reset and half-open
//! connections, for all connections or in the middle of one.

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

/// The state of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Passes everything on.
    #[default]
    Normal,
    /// Passes everything on after this delay.
    Delayed(Duration),
    /// Passes nothing on in this direction, and tells nobody.
    Silent(Direction),
    /// Closes new connections at once and keeps the existing ones.
    Refusing,
}

/// A direction of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
    /// Both.
    Both,
}

/// Closes a connection around the chunk with this number, counted over all connections and both
/// directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The chunk is lost.
    Before(u64),
    /// The chunk still arrives.
    After(u64),
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disconnect {
    /// Closes both sides.
    #[default]
    Close,
    /// Resets both sides.
    Reset,
    /// Closes the server's side at once, and the client's after this time.
    HalfOpen(Duration),
}

/// Ends the next connection that passes this many bytes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmedCut {
    /// The direction of the bytes; not both.
    pub direction: Direction,
    /// The number of bytes, counted from now on over all connections.
    pub bytes: usize,
    /// How the connection ends.
    pub disconnect: Disconnect,
}

/// A proxy in front of a server, for as long as it incarnations.
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
    network: watch::Sender<Network>,
    /// Every change ends all connections.
    cuts: watch::Sender<(u64, Disconnect)>,
    chunks: AtomicU64,
    cut: Option<Cut>,
    armed: Mutex<Option<ArmedCut>>,
    fired: AtomicU64,
    /// The client ports of the open connections, as the server sees them.
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
            network: watch::Sender::new(Network::Normal),
            cuts: watch::Sender::new((0, Disconnect::Close)),
            chunks: AtomicU64::new(0),
            cut,
            armed: Mutex::default(),
            fired: AtomicU64::new(0),
            ports: Mutex::default(),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { port, shared, _accepting: accepting })
    }

    /// Sets the state of the network.
    pub fn set(&self, network: Network) {
        self.shared.network.send_replace(network);
    }

    /// Ends every connection that there is.
    pub fn end_all(&self, disconnect: Disconnect) {
        self.shared.cuts.send_modify(|(cuts, how)| (*cuts, *how) = (*cuts + 1, disconnect));
    }

    /// Arms a cut, in place of one that has not fired.
    pub fn arm(&self, armed: ArmedCut) {
        *self.shared.armed.lock().unwrap_or_else(PoisonError::into_inner) = Some(armed);
    }

    /// How many armed cuts have fired.
    pub fn fired_cuts(&self) -> u64 {
        self.shared.fired.load(Ordering::Relaxed)
    }

    /// The client ports of the open connections, as the server sees them.
    pub fn ports(&self) -> Vec<u16> {
        let ports = self.shared.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.iter().copied().collect()
    }

    /// How many chunks were passed on, or should have been.
    pub fn chunks(&self) -> u64 {
        self.shared.chunks.load(Ordering::Relaxed)
    }

    /// The same URL through this proxy.
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
        if *shared.network.borrow() == Network::Refusing {
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
    let _listed = RegisteredPort::new(&shared, port);
    // A chunk is what was written at once, and goes on at once.
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let (client_in, client_out) = client.split();
    let (server_in, server_out) = server.split();
    // Whichever direction ends first ends both.
    let disconnect = tokio::select! {
        disconnect = pump(client_in, server_out, Direction::ToServer, &shared) => disconnect.unwrap_or_default(),
        disconnect = pump(server_in, client_out, Direction::ToClient, &shared) => disconnect.unwrap_or_default(),
        _ = cuts.changed() => cuts.borrow().1,
    };
    match disconnect {
        Disconnect::Close => {}
        Disconnect::Reset => {
            client.set_zero_linger().ok();
            server.set_zero_linger().ok();
        }
        Disconnect::HalfOpen(length) => {
            drop(server);
            tokio::time::sleep(length).await;
        }
    }
}

/// A port that is listed for as long as its connection incarnations.
struct RegisteredPort<'a>(&'a Shared, u16);

impl<'a> RegisteredPort<'a> {
    fn new(shared: &'a Shared, port: u16) -> Self {
        shared.ports.lock().unwrap_or_else(PoisonError::into_inner).insert(port);
        Self(shared, port)
    }
}

impl Drop for RegisteredPort<'_> {
    fn drop(&mut self) {
        self.0.ports.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    direction: Direction,
    shared: &Shared,
) -> io::Result<Disconnect> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(Disconnect::Close);
        }
        let number = shared.chunks.fetch_add(1, Ordering::Relaxed) + 1;
        if shared.cut == Some(Cut::Before(number)) {
            return Ok(Disconnect::Close);
        }
        shared.network(direction).await;
        if let Some((bytes, disconnect)) = shared.fire(direction, length) {
            to.write_all(&buffer[..bytes]).await?;
            to.flush().await?;
            return Ok(disconnect);
        }
        to.write_all(&buffer[..length]).await?;
        if shared.cut == Some(Cut::After(number)) {
            to.flush().await?;
            return Ok(Disconnect::Close);
        }
    }
}

impl Shared {
    /// How many of these bytes are still passed on and how the connection ends, if the armed cut fires.
    fn fire(&self, direction: Direction, length: usize) -> Option<(usize, Disconnect)> {
        let mut slot = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        let armed = slot.as_mut().filter(|armed| armed.direction == direction)?;
        if armed.bytes >= length {
            armed.bytes -= length;
            return None;
        }
        let fired = (armed.bytes, armed.disconnect);
        *slot = None;
        self.fired.fetch_add(1, Ordering::Relaxed);
        Some(fired)
    }

    /// Waits as long as the state of the network requires.
    async fn network(&self, direction: Direction) {
        let mut network = self.network.subscribe();
        loop {
            let now = *network.borrow_and_update();
            match now {
                Network::Silent(silent) if silent == direction || silent == Direction::Both => {}
                Network::Delayed(by) => return tokio::time::sleep(by).await,
                _ => return,
            }
            if network.changed().await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
