//! Bodies that are slow, large or invalid.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};

use crate::serve::config::AllowedPaths;
use crate::serve::edge::Edge;

/// Sends one byte per second, indefinitely.
struct Dribble(Pin<Box<tokio::time::Sleep>>);

impl Body for Dribble {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::task::ready!(self.0.as_mut().poll(cx));
        self.0 = Box::pin(tokio::time::sleep(Duration::from_secs(1)));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"1")))))
    }
}

async fn put<B>(body: B) -> (StatusCode, String)
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send,
{
    let everything = AllowedPaths::new(&["*".to_owned()]).unwrap();
    let request = Request::builder().method(Method::PUT).uri("/debug/flags/v").body(body).unwrap();
    let (answer, _) = Edge::new(everything).routes.serve(request, &[]).await;
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_body_that_dribbles_in_is_given_up() {
    let began = tokio::time::Instant::now();
    let (status, text) = put(Dribble(Box::pin(tokio::time::sleep(Duration::ZERO)))).await;
    assert_eq!((status, text.as_str()), (StatusCode::REQUEST_TIMEOUT, "the request body took too long\n"));
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn a_body_that_is_too_large_or_no_number_is_refused() {
    let (status, text) = put(Full::new(Bytes::from(vec![b'1'; 1 << 20]))).await;
    assert_eq!(
        (status, text.as_str()),
        (StatusCode::BAD_REQUEST, "error reading request body: length limit exceeded\n")
    );
    let (status, _) = put(Full::new(Bytes::from_static(b"x"))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_page_needs_the_permission_for_the_state_and_runs_only_its_own_script() {
    let get = async |allowed: &str, path: &str| {
        let allowed = AllowedPaths::new(&[allowed.to_owned()]).unwrap();
        let request = Request::builder().uri(path).body(Full::<Bytes>::default()).unwrap();
        Edge::new(allowed).routes.serve(request, &[]).await.0
    };
    let page = get("/debug/state", "/debug/").await;
    assert_eq!(page.status(), StatusCode::OK);
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(policy.ends_with("; frame-ancestors 'none'"), "{policy}");
    assert_eq!(get("/debug/state", "/debug").await.headers()["location"], "/debug/");
    let refused = get("/metrics", "/debug/state").await.status();
    assert!(!refused.is_success());
    for path in ["/debug", "/debug/"] {
        let answer = get("/metrics", path).await;
        assert_eq!(answer.status(), refused, "{path}");
        assert!(!answer.headers().contains_key("location"), "{path}");
    }
}
