// The Go core, k8s.io/cloud-provider unchanged, with a cloud that is one JSON file: the reference of ccm-conformance.
// hack/reference.sh builds it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/klog/v2"
)

// content is the part of the fake provider's file that ccm-conformance uses.
type content struct {
	Unlisted   string          `json:"unlisted"`
	Interfaces map[string]bool `json:"interfaces"`
	Zone       struct {
		FailureDomain string `json:"failureDomain"`
		Region        string `json:"region"`
	} `json:"zone"`
	Instances []machine `json:"instances"`
	Faults    []struct {
		Call    string `json:"call"`
		Node    string `json:"node"`
		Service string `json:"service"`
		Error   string `json:"error"`
	} `json:"faults"`
}

type machine struct {
	Name      string            `json:"name"`
	Type      string            `json:"type"`
	Addresses []v1.NodeAddress  `json:"addresses"`
	Labels    map[string]string `json:"labels"`
	Exists    *bool             `json:"exists"`
	Shutdown  bool              `json:"shutdown"`
}

// fake reads its file for each call, so that a change applies at once.
type fake struct {
	path      string
	mu        sync.Mutex
	balancers map[string]*v1.LoadBalancerStatus
	given     int
	routes    map[string]*cloudprovider.Route
}

func (f *fake) read(call, node, service string) (*content, error) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	var c content
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	for _, rule := range c.Faults {
		if rule.Call == call && rule.Node == node && rule.Service == service {
			return nil, errors.New(rule.Error)
		}
	}
	return &c, nil
}

// machine returns nil if the instance is gone.
func (f *fake) machine(call string, node *v1.Node) (*content, *machine, error) {
	c, err := f.read(call, node.Name, "")
	if err != nil {
		return nil, nil, err
	}
	for i := range c.Instances {
		if m := &c.Instances[i]; m.Name == node.Name {
			if m.Exists != nil && !*m.Exists {
				return c, nil, nil
			}
			return c, m, nil
		}
	}
	if c.Unlisted == "error" {
		return nil, nil, fmt.Errorf("no entry for %s", node.Name)
	}
	return c, nil, nil
}

func (f *fake) InstanceExists(_ context.Context, node *v1.Node) (bool, error) {
	_, m, err := f.machine("InstanceExists", node)
	return m != nil, err
}

func (f *fake) InstanceShutdown(_ context.Context, node *v1.Node) (bool, error) {
	_, m, err := f.machine("InstanceShutdown", node)
	if err == nil && m == nil {
		err = cloudprovider.InstanceNotFound
	}
	return m != nil && m.Shutdown, err
}

func (f *fake) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	c, m, err := f.machine("InstanceMetadata", node)
	if err == nil && m == nil {
		err = cloudprovider.InstanceNotFound
	}
	if err != nil {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: "fake://" + m.Name, InstanceType: m.Type, NodeAddresses: m.Addresses,
		Zone: c.Zone.FailureDomain, Region: c.Zone.Region, AdditionalLabels: m.Labels,
	}, nil
}

func key(s *v1.Service) string { return s.Namespace + "/" + s.Name }

func (f *fake) GetLoadBalancerName(_ context.Context, _ string, s *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(s)
}

func (f *fake) GetLoadBalancer(_ context.Context, _ string, s *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.read("GetLoadBalancer", "", key(s))
	status, found := f.balancers[key(s)]
	return status, found && err == nil, err
}

func (f *fake) EnsureLoadBalancer(_ context.Context, _ string, s *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.read("EnsureLoadBalancer", "", key(s)); err != nil {
		return nil, err
	}
	if f.balancers[key(s)] == nil {
		f.given++
		f.balancers[key(s)] = &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: fmt.Sprintf("203.0.113.%d", f.given)}}}
	}
	return f.balancers[key(s)], nil
}

func (f *fake) UpdateLoadBalancer(_ context.Context, _ string, s *v1.Service, _ []*v1.Node) error {
	_, err := f.read("UpdateLoadBalancer", "", key(s))
	return err
}

func (f *fake) EnsureLoadBalancerDeleted(_ context.Context, _ string, s *v1.Service) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.read("EnsureLoadBalancerDeleted", "", key(s))
	if err == nil {
		delete(f.balancers, key(s))
	}
	return err
}

func (f *fake) ListRoutes(context.Context, string) ([]*cloudprovider.Route, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*cloudprovider.Route
	for _, route := range f.routes {
		list = append(list, route)
	}
	return list, nil
}

func (f *fake) CreateRoute(_ context.Context, _, _ string, route *cloudprovider.Route) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.read("CreateRoute", string(route.TargetNode), "")
	if err == nil {
		f.routes[route.DestinationCIDR] = route
	}
	return err
}

func (f *fake) DeleteRoute(_ context.Context, _ string, route *cloudprovider.Route) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.routes, route.DestinationCIDR)
	return nil
}

func (f *fake) has(part string) bool {
	c, err := f.read("", "", "")
	return err == nil && c.Interfaces[part]
}

func (f *fake) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (f *fake) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return f, f.has("loadBalancer") }
func (f *fake) Routes() (cloudprovider.Routes, bool)                              { return f, f.has("routes") }
func (f *fake) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return f, true }
func (f *fake) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (f *fake) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (f *fake) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (f *fake) ProviderName() string                                              { return "fake" }
func (f *fake) HasClusterID() bool                                                { return true }

var _ cloudprovider.Interface = &fake{}

func initialize(c *config.CompletedConfig) cloudprovider.Interface {
	chosen := c.ComponentConfig.KubeCloudShared.CloudProvider
	cloudprovider.RegisterCloudProvider("fake", func(io.Reader) (cloudprovider.Interface, error) {
		f := &fake{path: chosen.CloudConfigFile, balancers: map[string]*v1.LoadBalancerStatus{}, routes: map[string]*cloudprovider.Route{}}
		_, err := f.read("", "", "")
		return f, err
	})
	cloud, err := cloudprovider.InitCloudProvider(chosen.Name, chosen.CloudConfigFile)
	if err != nil || cloud == nil {
		klog.Fatalf("the cloud provider %q did not start: %v", chosen.Name, err)
	}
	return cloud
}

func main() {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatalf("options: %v", err)
	}
	command := app.NewCloudControllerManagerCommand(opts, initialize, app.DefaultInitFuncConstructors,
		names.CCMControllerAliases(), cliflag.NamedFlagSets{}, wait.NeverStop)
	os.Exit(cli.Run(command))
}
