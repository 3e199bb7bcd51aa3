// The CRDs of the Prometheus operator, with which the tests check the alerts; build.sh in the folder above copies them out of
// the module. To move to another version: change it here, then
// `go mod download -json github.com/prometheus-operator/prometheus-operator` writes go.sum.

module ccm.test/crds

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
