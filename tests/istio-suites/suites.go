//go:build tools

// Package suites names what scripts/istio-suite-programs builds, so that go.mod and go.sum hold all
// of its dependencies: Istio's programs and its integration suites are packages of istio.io/istio.
package suites

import (
	_ "github.com/onsi/gomega"
	_ "istio.io/istio/cni/cmd/install-cni"
	_ "istio.io/istio/cni/cmd/istio-cni"
	_ "istio.io/istio/pilot/cmd/pilot-agent"
	_ "istio.io/istio/pilot/cmd/pilot-discovery"
	_ "istio.io/istio/pkg/test/cert/ca"
	_ "istio.io/istio/pkg/test/csrctrl/controllers"
	_ "istio.io/istio/pkg/test/datasets/validation"
	_ "istio.io/istio/pkg/test/echo/cmd/client"
	_ "istio.io/istio/pkg/test/echo/cmd/server"
	_ "istio.io/istio/pkg/test/fakes/imageregistry"
	_ "istio.io/istio/pkg/test/framework"
	_ "istio.io/istio/pkg/test/framework/components/ambient"
	_ "istio.io/istio/pkg/test/framework/components/crd"
	_ "istio.io/istio/pkg/test/framework/components/echo/common/deployment"
	_ "istio.io/istio/pkg/test/framework/components/opentelemetry"
	_ "istio.io/istio/pkg/test/framework/components/prometheus"
	_ "istio.io/istio/pkg/test/framework/components/registryredirector"
	_ "istio.io/istio/pkg/test/framework/components/zipkin"
	_ "istio.io/istio/pkg/test/helm"
	_ "istio.io/istio/pkg/test/shell"
	_ "istio.io/istio/samples/extauthz/cmd/extauthz"
	_ "istio.io/istio/samples/jwt-server/src"
	_ "istio.io/istio/tests/integration/pilot/common"
	_ "sigs.k8s.io/controller-runtime/pkg/log/zap"
)
