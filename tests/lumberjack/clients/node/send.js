// Sends events with two clients of the npm registry.
//   node send.js v1 port ca.pem mark count   lumberjack-protocol: v1 over TLS, one W frame, then a stream; writes the
//                                            numbers acknowledged as JSON once all are
//   node send.js v2 port - mark count        lumberjack-client: v2, reads no acknowledgement; stays until its input ends
'use strict'
const fs = require('fs')

const [version, port, ca, mark, total] = process.argv.slice(2)
const count = Number(total)

if (version === 'v1') {
  const ClientSocket = require('lumberjack-protocol/lib/ClientSocket')
  const socket = new ClientSocket({ windowSize: 100, allowDrop: () => false })
  const heard = []
  socket.on('ack', (sequence) => {
    heard.push(sequence)
    if (sequence >= count) {
      console.log(JSON.stringify(heard))
      process.exit(0)
    }
  })
  socket.on('error', (error) => { throw error })
  socket.on('end', () => { throw new Error('the server closed') })
  socket.on('connect', () => {
    for (let n = 0; n < count; n++) {
      socket.writeDataFrame({ line: `line ${n} – ü`, mark, n, host: 'node' }, (error) => { if (error) throw error })
    }
  })
  socket.connect({ host: 'localhost', port: Number(port), ca: [fs.readFileSync(ca)] })
} else {
  const Client = require('lumberjack-client')
  const client = new Client({ host: '127.0.0.1', port: Number(port) })
  for (let n = 0; n < count; n++) client.log({ mark, n, message: `line ${n} – ü` })
  process.stdin.on('end', () => process.exit(0)).resume()
}
