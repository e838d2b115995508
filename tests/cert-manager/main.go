// Runs cert-manager's own controllers against an API server: the approver, the Issuers and the CA issuer, in all namespaces.
//
// The program of cert-manager is in a module that is not published, its controllers are in one that is.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	"golang.org/x/sync/errgroup"

	// The kinds of Issuers, which their controllers look up by name.
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
)

// The workers of each controller, as in cert-manager.
const workers = 5

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the file with the API server and the credentials")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	if err := run(ctx, *kubeconfig); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	options := controller.ContextOptions{Kubeconfig: kubeconfig}
	options.ClusterResourceNamespace = "cert-manager"
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	for _, name := range []string{
		approver.ControllerName,
		ca.CRControllerName,
		issuers.ControllerName,
		clusterissuers.ControllerName,
	} {
		made, err := controller.Known()[name](factory)
		if err != nil {
			return err
		}
		group.Go(func() error { return made.Run(workers, ctx) })
	}

	// Each controller has a context of its own, all share the informers of the first.
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	return group.Wait()
}
