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
    proxy.set(Network::Silent(Direction::ToClient));
    let soon = Duration::from_millis(50);
    assert!(tokio::time::timeout(soon, say(&mut stream)).await.is_err());

    proxy.set(Network::Normal);

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
    proxy.set(Network::Refusing);
    proxy.end_all(Disconnect::Close);

    assert!(say(&mut stream).await.map_or(true, |answer| answer.is_empty()));
    assert!(say(&mut connect(&proxy).await).await.map_or(true, |answer| answer.is_empty()));
}

#[tokio::test]
async fn a_reset_is_an_error_and_half_open_is_silence() {
    let (upstream, _serving) = echo().await;
    let proxy = Proxy::start(&upstream, None).await.unwrap();
    let mut reset = connect(&proxy).await;
    assert_eq!(say(&mut reset).await.unwrap(), b"hello");
    assert_eq!(proxy.ports().len(), 1);
    proxy.end_all(Disconnect::Reset);
    let error = reset.read(&mut [0; 5]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);

    let mut half = connect(&proxy).await;
    assert_eq!(say(&mut half).await.unwrap(), b"hello");
    proxy.end_all(Disconnect::HalfOpen(Duration::from_secs(60)));

    let soon = Duration::from_millis(50);
    assert!(tokio::time::timeout(soon, say(&mut half)).await.is_err());
}

#[tokio::test]
async fn a_trap_is_sprung_in_the_middle_of_a_chunk() {
    let (upstream, _serving) = echo().await;
    let proxy = Proxy::start(&upstream, None).await.unwrap();
    let mut stream = connect(&proxy).await;
    proxy.arm(ArmedCut { direction: Direction::ToClient, bytes: 8, disconnect: Disconnect::Close });

    assert_eq!(say(&mut stream).await.unwrap(), b"hello");
    assert_eq!(say(&mut stream).await.unwrap(), b"hel");
    assert_eq!(proxy.fired_cuts(), 1);
    assert_eq!(say(&mut connect(&proxy).await).await.unwrap(), b"hello", "healed");
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
