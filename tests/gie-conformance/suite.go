//go:build tools

// Package suite names the conformance suite, so that go.mod and go.sum hold all of its
// dependencies. What is no library is a tool in go.mod.
package suite

import _ "sigs.k8s.io/gateway-api-inference-extension/conformance"
