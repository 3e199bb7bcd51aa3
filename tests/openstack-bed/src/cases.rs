//! One case on both kinds of cloud.

/// Generates tests from cases: those in `both` become tests in the modules `simulated` and `real_openstack`, those in
/// `simulated` only in the first one. A case is a function in the same module as the macro call; the functions
/// `simulated` and `real` of the module in brackets run it on their cloud.
///
/// ```ignore
/// ccm_test_openstack::cases! { [crate::scene]
///     both:
///         a_service_gets_a_balancer;
///     simulated:
///         a_throttled_cloud_is_asked_again;
/// }
/// ```
#[macro_export]
macro_rules! cases {
    ($runner:tt both: $($both:ident),*; simulated: $($alone:ident),*$(;)?) => {
        $crate::cases!(@module simulated $runner simulated $($both)* $($alone)*);
        $crate::cases!(@module real_openstack $runner real $($both)*);
    };
    (@module $module:ident $runner:tt $cloud:ident $($case:ident)*) => {
        mod $module {
            $($crate::cases!(@case $runner $cloud $case);)*
        }
    };
    (@case [$($runner:tt)*] $cloud:ident $case:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            $($runner)*::$cloud(super::$case).await;
        }
    };
}
