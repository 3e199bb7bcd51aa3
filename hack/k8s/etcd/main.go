// Command etcd is the stock etcd server. It exists so that the tests can build etcd with nothing but Go
// and a committed go.sum: the release module of etcd itself cannot be installed by `go install`.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
