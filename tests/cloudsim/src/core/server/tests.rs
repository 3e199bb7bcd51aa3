use super::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

struct Slow;

impl Handler for Slow {
    fn answer(self: Arc<Self>, _: Request) -> BoxFuture<'static, Answer> {
        Box::pin(async {
            // As if the thread got no CPU time.
            std::thread::sleep(Duration::from_millis(5));
            Answer::Reply(http::Response::new(Bytes::from_static(b"done")))
        })
    }
}

#[tokio::test]
async fn calls_that_follow_each_other_have_ended_when_it_is_settled() {
    let runtime = Runtime::start("settled").unwrap();
    let server = runtime.spawner().serve(0, Arc::new(Slow)).unwrap();
    let address = server.address();
    let caller = tokio::spawn(async move {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.ends_with("done"), "{answer}");
        }
    });
    runtime.settled().await;
    assert!(caller.is_finished());
    caller.await.unwrap();
}
