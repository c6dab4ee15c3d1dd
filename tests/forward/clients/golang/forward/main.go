// A client with github.com/IBM/fluent-forward-go. Both libraries in one program would register the same msgpack extension.
package main

import (
	"crypto/tls"
	"fmt"

	"github.com/IBM/fluent-forward-go/fluent/client"
	"github.com/IBM/fluent-forward-go/fluent/protocol"
	"headrace/tests/forward/clients/order"
)

func send(order order.Order) error {
	factory := &client.ConnFactory{Network: "tcp", Address: fmt.Sprintf("%s:%d", order.Host, order.Port)}
	if order.Network == "tls" {
		factory.TLSConfig = &tls.Config{InsecureSkipVerify: true}
	}
	options := client.ConnectionOptions{Factory: factory, RequireAck: order.Ack}
	if order.SharedKey != "" {
		options.AuthInfo.SharedKey = []byte(order.SharedKey)
	}
	sender := client.New(options)
	sender.Hostname = order.Hostname
	if err := sender.Connect(); err != nil {
		return err
	}
	if order.SharedKey != "" {
		if err := sender.Handshake(); err != nil {
			return fmt.Errorf("handshake: %w", err)
		}
	}
	// A user's own retry: the library has none.
	attempt := func(send func() error) error {
		err := send()
		if err != nil && order.Again {
			if err = sender.Reconnect(); err == nil {
				err = send()
			}
		}
		return err
	}
	for n := 0; n < order.Count; n += order.Batch {
		var entries protocol.EntryList
		for i := n; i < n+order.Batch && i < order.Count; i++ {
			entries = append(entries, protocol.EntryExt{Timestamp: protocol.EventTimeNow(), Record: order.Record(i)})
		}
		var err error
		switch order.Mode {
		case "Forward":
			err = attempt(func() error { return sender.SendForward(order.Tag, entries) })
		case "Send": // the same message again, packed once: a map is written in a new order each time
			message, failed := protocol.NewPackedForwardMessage(order.Tag, entries)
			if failed != nil {
				return failed
			}
			err = attempt(func() error { return sender.Send(message) })
		case "PackedForward":
			err = sender.SendPacked(order.Tag, entries)
		case "CompressedPackedForward":
			err = sender.SendCompressed(order.Tag, entries)
		default:
			for i := range entries {
				if err = sender.SendMessageExt(order.Tag, entries[i].Record); err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return sender.Disconnect()
}

func main() {
	order.Run(send)
}
