//! Lists: all pages, or none.

use super::*;
use crate::client::elbv2::Which;

fn instances(ids: impl IntoIterator<Item = String>, next: Option<&str>) -> Wire {
    let items: String = ids.into_iter().map(|id| format!("<item><instanceId>{id}</instanceId></item>")).collect();
    let next = next.map(|next| format!("<nextToken>{next}</nextToken>")).unwrap_or_default();
    let content = format!("<reservationSet><item><instancesSet>{items}</instancesSet></item></reservationSet>{next}");
    ec2_answer("DescribeInstances", &content)
}

fn ids(found: &[crate::client::ec2::Instance]) -> Vec<&str> {
    found.iter().map(|instance| &*instance.id).collect()
}

#[tokio::test]
async fn all_pages_of_a_thousand_are_read() {
    let stub = Running::start(|nth, _| match nth {
        0 => instances(["i-1".to_owned()], Some("two")),
        1 => instances(["i-2".to_owned()], Some("")),
        _ => instances(["i-3".to_owned()], None),
    });
    let found = stub.api().instances(&Query::all()).await.unwrap();
    assert_eq!(ids(&found), ["i-1", "i-2"], "an empty token ends a list");
    let forms = stub.forms();
    assert!(forms.iter().all(|form| form.contains("MaxResults=1000")), "{forms:?}");
    assert!(!forms[0].contains("NextToken") && forms[1].contains("NextToken=two"), "{forms:?}");
}

#[tokio::test]
async fn a_page_size_never_goes_with_ids() {
    let stub = Running::start(|_, _| instances(["i-1".to_owned()], None));
    stub.api().instances(&Query::ids(["i-1", "i-2"])).await.unwrap();
    let form = &stub.forms()[0];
    assert!(form.contains("InstanceId.1=i-1&InstanceId.2=i-2") && !form.contains("MaxResults"), "{form}");
}

#[tokio::test]
async fn many_values_are_asked_for_in_several_calls_and_nothing_comes_twice() {
    let stub = Running::start(|_, _| instances(["i-shared".to_owned()], None));
    let values: Vec<String> = (0..450).map(|n| format!("i-{n:03}")).collect();
    let query = Query::by("instance-id", &values).and("vpc-id", ["vpc-1"]);
    let found = stub.api().instances(&query).await.unwrap();
    assert_eq!(ids(&found), ["i-shared"]);
    let forms = stub.forms();
    let counts: Vec<usize> = forms.iter().map(|form| form.matches(".Value.").count()).collect();
    assert_eq!(counts, [200, 200, 53], "199 of the long filter and one of the short in a call");
    assert!(forms.iter().all(|form| form.contains("vpc-1")));
}

#[tokio::test]
async fn balancers_are_named_twenty_at_a_time_and_classic_ones_four_hundred() {
    let stub = Running::start(|_, form| {
        let action = if form.contains("Action=DescribeTags") { "DescribeTags" } else { "DescribeLoadBalancers" };
        elb_answer(action, "")
    });
    let (api, names) = (stub.api(), (0..450).map(|n| format!("a{n}")).collect::<Vec<_>>());
    let calls = |stub: &Running| stub.stub.asked.swap(0, Ordering::Relaxed);
    api.balancers(&Which::Names(names[..45].to_vec())).await.unwrap();
    assert_eq!(calls(&stub), 3);
    api.balancer_tags(&names[..41]).await.unwrap();
    assert_eq!(calls(&stub), 3);
    api.classic_balancers(&names).await.unwrap();
    assert_eq!(calls(&stub), 2);
    api.classic_tags(&names[..20]).await.unwrap();
    assert_eq!(calls(&stub), 1);
    // An empty list of names reads nothing. Without names, the call for classic balancers returns all of them.
    assert_eq!(api.balancers(&Which::Names(Vec::new())).await.unwrap(), []);
    assert!(api.classic_tags(&[]).await.unwrap().is_empty());
    assert_eq!(calls(&stub), 0);
}

#[tokio::test]
async fn what_is_unknown_or_absent_fails_no_list() {
    let stub = Running::start(|_, form| {
        if form.contains("DescribeInstances") {
            let odd = "<instanceId>i-1</instanceId><instanceState><code>9</code><name>dreaming</name></instanceState>\
                       <instanceType>q9.huge</instanceType><fresh><item>x</item></fresh>";
            let bare = "<instanceId>i-2</instanceId>";
            let content = format!(
                "<reservationSet><item><instancesSet><item>{odd}</item><item>{bare}</item></instancesSet></item><item/></reservationSet>"
            );
            return ec2_answer("DescribeInstances", &content);
        }
        let odd = "<member><LoadBalancerArn>arn:1</LoadBalancerArn><Type>quantum</Type><State><Code>dreaming</Code></State></member>";
        elb_answer("DescribeLoadBalancers", &format!("<LoadBalancers>{odd}<member/></LoadBalancers>"))
    });
    let found = stub.api().instances(&Query::all()).await.unwrap();
    assert_eq!((found[0].state.as_deref(), &*found[0].instance_type), (Some("dreaming"), "q9.huge"));
    assert_eq!((found[1].state.as_deref(), found[1].interfaces.len()), (None, 0));
    let balancers = stub.api().balancers(&Which::All).await.unwrap();
    assert_eq!((&*balancers[0].kind, &*balancers[0].state, &*balancers[1].arn), ("quantum", "dreaming", ""));
}
